"""Forks' types with wrong settings, bottoms and tops: each builds, or is refused in words that name the layer."""

import copy
import functools
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import Any

import fork_cases
import pytest

import caffejax.data  # noqa: F401  registers the data layers
from caffejax.errors import CaffejaxError
from caffejax.layers import layer_types
from caffejax.net import Net
from caffejax.schema import read_net
from golden_cases import ACCEPTED_CASES

pytestmark = pytest.mark.long

NUMBERS: dict[int, list[Any]] = {
    1: [0, -1, 2**31 - 1],  # the protobuf's numbers of C++ types: int32
    2: [0, -1],
    3: [0, 2**32 - 1],  # uint32
    4: [0],
    5: [0.0, -1.0, 1e30, float("nan")],  # double
    6: [0.0, -1.0, 1e30, float("nan")],  # float
}


@functools.cache
def _texts() -> dict[str, tuple[str | Path, Any]]:
    """A net around each fork's type, by its name, and the net's phase."""
    result: dict[str, tuple[str | Path, Any]] = {}
    for module in iter_modules(fork_cases.__path__):
        for case in import_module(f"fork_cases.{module.name}").LAYERS:
            layers = [layer.type for layer in read_net(case.text(2)).layer if layer.name == "layer"]
            result.setdefault(layers[0] if layers else "", (case.text(2), case.phase))
    for case in ACCEPTED_CASES:
        result.setdefault(case["type"], (case["path"].with_suffix(".prototxt"), case["phase"]))
    types = layer_types()
    return {name: x for name, x in sorted(result.items()) if name in types and types[name].docs.origin != "BVLC"}


def _generate_mutants(original: Any) -> Iterator[Any]:
    """Nets with one thing changed each: a number, a bottom, a top, or an input's shape."""
    layer_index = next(i for i, layer in enumerate(original.layer) if layer.name == "layer")
    layer = original.layer[layer_index]

    def changed() -> Any:
        new = copy.deepcopy(original)
        return new, new.layer[layer_index]

    name = layer_types()[layer.type].signature.param or ""
    for field in getattr(layer, name).DESCRIPTOR.fields if name else ():
        for value in NUMBERS.get(field.cpp_type, ()):
            new, mutant = changed()
            param = getattr(mutant, name)
            before = getattr(param, field.name)
            if hasattr(before, "extend"):
                before[:] = [value] * max(1, len(before))
            else:
                setattr(param, field.name, value)
            yield new
    for i in range(len(layer.bottom)):
        new, mutant = changed()
        del mutant.bottom[i]
        yield new
    for n in (0, len(layer.top) + 1):
        new, mutant = changed()
        mutant.top[:] = [f"t{i}" for i in range(n)]
        yield new
    for i, source in enumerate(original.layer):
        for j, shape in enumerate(source.input_param.shape):
            dims = list(shape.dim)
            for other in ([], dims[:-1], [*dims, 2], [0, *dims[1:]], [*dims[:-1], 0], [*dims[:-1], 3]):
                new, _ = changed()
                new.layer[i].input_param.shape[j].dim[:] = other
                yield new


@pytest.mark.parametrize("name", _texts())
def test_mutants_build_or_are_refused_by_name(name: str) -> None:
    text, phase = _texts()[name]
    for mutant in _generate_mutants(read_net(text)):
        message = "layer '"
        try:
            Net(mutant, phase)
        except CaffejaxError as error:
            message = str(error)
        assert "layer '" in message, mutant
