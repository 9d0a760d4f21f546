"""Write the indexes of layer types, core/layers/index.json and forks/index.json: which module registers each type.

python scripts/make_layer_index.py          writes them
python scripts/make_layer_index.py --check  fails if one is out of date
"""

import argparse
import importlib
import json
import pkgutil
import sys
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any, cast

from caffejax import forks
from caffejax.core import data, layers
from caffejax.core.layers import packages, registry

CORE_INDEX = Path(registry.__file__).with_name("index.json")
FORKS_INDEX = Path(forks.__file__).with_name("index.json")


def make_indexes() -> dict[Path, dict[str, Any]]:
    """Import all modules of layers; return both indexes, by their files."""
    modules: dict[str, str] = {}  # that register types
    variant_modules: dict[str, list[str]] = {}  # that add variants to types
    add_type, register_variants = registry.add_type, registry.register_variants

    def record_type(layer_type: Any, module: str) -> None:
        for name in (layer_type.name, *layer_type.signature.aliases):
            modules[name] = find_calling_module()
        add_type(layer_type, module)

    def record_variants(name: str, *arguments: Any) -> Any:
        variant_modules.setdefault(name, []).append(find_calling_module())
        return register_variants(name, *arguments)

    registry.add_type = record_type
    registry.register_variants = record_variants
    # the old indexes may name modules that have been renamed
    registry._read_index = dict  # type: ignore[assignment]
    packages._list_entries = lambda: ([], [])  # type: ignore[assignment]
    for package in (layers, data, forks):
        import_modules(package)
    core_types = {name: module for name, module in modules.items() if not is_in_forks(module)}
    fork_types = {name: module for name, module in modules.items() if is_in_forks(module)}
    variants = {name: sorted(variant_modules[name]) for name in sorted(variant_modules)}
    return {
        CORE_INDEX: dict(sorted(core_types.items())),
        FORKS_INDEX: {"types": dict(sorted(fork_types.items())), "variants": variants},
    }


def find_calling_module() -> str:
    """Return the name of the module whose import calls the function that calls this one."""
    frame = sys._getframe(1)
    while frame.f_code.co_name != "<module>":
        frame = cast(FrameType, frame.f_back)
    return str(frame.f_globals["__name__"])


def import_modules(package: ModuleType) -> None:
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        importlib.import_module(module.name)


def is_in_forks(module: str) -> bool:
    return module.startswith(f"{forks.__name__}.")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="only compare")
    options = parser.parse_args()
    for path, index in make_indexes().items():
        text = json.dumps(index, indent=2) + "\n"
        if not options.check:
            path.write_text(text)
        elif not path.exists() or path.read_text() != text:
            raise SystemExit(f"{path} is out of date: run python scripts/make_layer_index.py")


if __name__ == "__main__":
    main()
