"""Write src/caffejax/core/layers/index.json: which module registers each layer type.

python scripts/make_layer_index.py          writes it
python scripts/make_layer_index.py --check  fails if it is out of date
"""

import argparse
import importlib
import json
import pkgutil
import sys
from pathlib import Path
from typing import Any

from caffejax import forks
from caffejax.core import data, layers
from caffejax.core.layers import registry

INDEX = Path(registry.__file__).with_name("index.json")


def map_types_to_modules() -> dict[str, str]:
    """Import all modules of layers; return which one registered each type, by the type's names."""
    modules: dict[str, str] = {}
    register = registry.register

    def record_module(layer_type: Any) -> Any:
        frame = sys._getframe(1)
        while frame.f_code.co_name != "<module>":
            assert frame.f_back is not None
            frame = frame.f_back
        for name in (layer_type.name, *layer_type.signature.aliases):
            modules[name] = frame.f_globals["__name__"]
        return register(layer_type)

    registry.register = layers.register = record_module
    registry._read_index = dict  # the old index may name modules that have been renamed
    for package in (data, forks):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            importlib.import_module(module.name)
    layers.layer_types()
    return {name: modules[name] for name in sorted(modules)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="only compare")
    options = parser.parse_args()
    text = json.dumps(map_types_to_modules(), indent=2) + "\n"
    if not options.check:
        INDEX.write_text(text)
    elif not INDEX.exists() or INDEX.read_text() != text:
        raise SystemExit(f"{INDEX} is out of date: run python scripts/make_layer_index.py")


if __name__ == "__main__":
    main()
