"""Layer types of other packages are found by entry points, and core works without those of forks."""

import importlib.metadata
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

import caffejax
from caffejax.base.errors import GraphError
from caffejax.core.layers import layer_type, layer_types, packages, registry
from caffejax.core.layers.packages import GROUP, LayerPackage, find_builtin_type, iterate_packages, list_own_packages

SOURCES = Path(caffejax.__file__).parents[1]


class FakeDistribution(importlib.metadata.Distribution):
    """A distribution with a name only."""

    def __init__(self, name: str) -> None:
        self._name = name

    @property
    def name(self) -> str:
        return self._name

    def read_text(self, filename: str) -> None:
        pass

    def locate_file(self, path: Any) -> Any:
        raise NotImplementedError


@pytest.fixture
def set_entries(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Sets the installed entry points, each by the distribution and the module, for the test."""

    def forget() -> None:
        packages._list_entries.cache_clear()

    def set_entries(*entries: tuple[str, str]) -> None:
        result = []
        for distribution, module in entries:
            entry = EntryPoint(module.rpartition(".")[2], module, GROUP)
            vars(entry)["dist"] = FakeDistribution(distribution)
            result.append(entry)
        monkeypatch.setattr(importlib.metadata, "entry_points", lambda *, group: result if group == GROUP else [])
        forget()

    yield set_entries
    monkeypatch.undo()
    forget()


@pytest.fixture
def add_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], None]:
    """Makes a module of another package, for the test."""
    monkeypatch.syspath_prepend(str(tmp_path))
    layer_types()  # all are imported: a type that is imported first in the test would be lost
    for name in ("_types", "_aliases"):
        monkeypatch.setattr(registry, name, dict(getattr(registry, name)))

    def add_module(name: str, text: str) -> None:
        (tmp_path / f"{name}.py").write_text(text)
        monkeypatch.delitem(sys.modules, name, raising=False)

    return add_module


REGISTER = """
from caffejax import register
register("{name}")(lambda x: x)
"""


def test_an_entry_may_register_types_by_itself_or_list_them(
    set_entries: Callable[..., None], add_module: Callable[[str, str], None]
) -> None:
    add_module("eager_layers", REGISTER.format(name="EagerOwn"))
    add_module("lazy_layer", REGISTER.format(name="LazyOwn"))
    add_module("unused_layer", "raise AssertionError('it is not needed')")
    add_module(
        "lazy_package",
        "from caffejax.core.layers.packages import LayerPackage\n"
        "LAYERS = LayerPackage({'LazyOwn': 'lazy_layer', 'Other': 'unused_layer'}, python_layers='lazy_package')\n"
        "def find_builtin_type(module, name): return 'found' if name == 'Mine' else None",
    )
    set_entries(("someone", "lazy_package"), ("someone", "eager_layers"))
    assert layer_type("LazyOwn").name == "LazyOwn"
    assert "eager_layers" not in sys.modules
    assert layer_type("EagerOwn").name == "EagerOwn"
    assert find_builtin_type("any", "Mine") == "found"


def test_only_an_absent_module_of_this_distribution_is_passed_over(set_entries: Callable[..., None]) -> None:
    set_entries(("caffejax", "caffejax.absent"))
    assert list(iterate_packages()) == []
    with pytest.raises(GraphError, match=r"unknown layer type 'Unheard'.*; layer types of Caffe's forks are not built"):
        layer_type("Unheard")
    set_entries(("caffejax", "caffejax.absent"), ("someone", "absent_module"))
    assert list_own_packages() == []
    with pytest.raises(caffejax.CaffejaxError, match="layer types absent_module of the package someone cannot be"):
        list(iterate_packages())


def test_a_folder_of_caches_is_no_package(
    set_entries: Callable[..., None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Version control leaves such folders where it deletes files."""
    (tmp_path / "caffejax_caches" / "__pycache__").mkdir(parents=True)
    monkeypatch.syspath_prepend(str(tmp_path))
    set_entries(("caffejax", "caffejax_caches"))
    assert list_own_packages() == []


def test_core_names_every_type_that_is_not_built_in(tmp_path: Path) -> None:
    """A copy of the sources without forks builds nets of Caffe's types, and says what it lacks for others."""
    shutil.copytree(SOURCES / "caffejax", tmp_path / "caffejax", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.rmtree(tmp_path / "caffejax" / "forks", ignore_errors=True)
    process = subprocess.run(
        [sys.executable, "-c", WITHOUT_FORKS],
        env={"PYTHONPATH": str(tmp_path), "JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 0, process.stderr
    lines = process.stdout.splitlines()
    assert lines[0] == str(tmp_path / "caffejax" / "__init__.py")
    assert "layer 'p': unknown layer type 'Permute'" in lines[1]
    assert "layer types of Caffe's forks are not built in" in lines[1]
    assert "layer 'p' (InnerProduct): takes exactly 1 bottom, but has 2" in lines[2]
    assert "inner_product_param.normalize (of happynear) is not supported" in lines[3]
    assert "unknown layer type" not in lines[2] + lines[3]
    assert lines[4] == "(2, 4)"


WITHOUT_FORKS = """
import caffejax
print(caffejax.__file__)
INPUT = 'layer { name: "x" type: "Input" top: "x" input_param { shape { dim: 2 dim: 3 } } }'
LAYER = 'layer { name: "p" type: "%s" bottom: "x" %s top: "y" inner_product_param { num_output: 4 %s } }'
for values in (("Permute", "", ""), ("InnerProduct", 'bottom: "x"', ""), ("InnerProduct", "", "normalize: true")):
    try:
        caffejax.Net(INPUT + LAYER % values, "TEST")
    except caffejax.CaffejaxError as error:
        print(" ".join(str(error).split()))
print(caffejax.Net(INPUT + LAYER % ("InnerProduct", "", ""), "TEST").graph.blobs["y"].shape)
"""


def test_packages_list_types_and_variants(tmp_path: Path) -> None:
    (tmp_path / "index.json").write_text('{"types": {"A": "a"}, "variants": {"B": ["b", "c"]}}')
    assert LayerPackage.read(tmp_path / "index.json") == LayerPackage({"A": "a"}, {"B": ["b", "c"]})


def test_a_broken_package_disturbs_only_what_needs_it(
    set_entries: Callable[..., None], add_module: Callable[[str, str], None]
) -> None:
    add_module("broken_layers", "import no_such_library")
    set_entries(("broken", "broken_layers"))
    registry._import_variants.cache_clear()
    for param in ("batch_norm_param { use_weight_bias: false }", "batch_norm_param { eps: 1 engine: CAFFE }"):
        bottom = 'bottom: "x" top: "y"'
        net = f'input: "x" input_shape {{ dim: 2 dim: 3 }} layer {{ name: "l" type: "BatchNorm" {bottom} {param} }}'
        assert caffejax.Net(net).outputs == ("y",)
    with pytest.raises(caffejax.CaffejaxError, match="layer types broken_layers of the package broken cannot be"):
        layer_type("NoSuchType")
