"""Forks' types with wrong settings, bottoms and tops build, or raise an error that names the layer."""

import copy
import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import caffejax.core.data  # noqa: F401  registers the data layers
from caffejax.base.errors import CaffejaxError
from caffejax.core.layers import layer_types
from caffejax.core.program.net import Net
from caffejax.core.schema import read_net
from golden_cases import ACCEPTED_CASES
from layer_suite import list_cases

pytestmark = pytest.mark.long

NUMBERS_BY_CPP_TYPE: dict[int, list[Any]] = {
    1: [0, -1, 2**31 - 1],  # the protobuf's numbers of C++ types: int32
    2: [0, -1],
    3: [0, 2**32 - 1],  # uint32
    4: [0],
    5: [0.0, -1.0, 1e30, float("nan")],  # double
    6: [0.0, -1.0, 1e30, float("nan")],  # float
}


@functools.cache
def _make_nets_by_type() -> dict[str, tuple[str | Path, Any]]:
    """Return, for each fork's type, a net that contains it and the net's phase."""
    result: dict[str, tuple[str | Path, Any]] = {}
    for case in list_cases():
        layers = [layer.type for layer in read_net(case.prototxt(2)).layer if layer.name == "layer"]
        result.setdefault(layers[0] if layers else "", (case.prototxt(2), case.phase))
    for case in ACCEPTED_CASES:
        result.setdefault(case["type"], (case["path"].with_suffix(".prototxt"), case["phase"]))
    types = layer_types()
    return {name: x for name, x in sorted(result.items()) if name in types and types[name].docs.origin != "BVLC"}


def _generate_mutants(original: Any) -> Iterator[Any]:
    """Yield nets with one change each: of a number, a bottom, a top, or an input's shape."""
    layer_index = next(i for i, layer in enumerate(original.layer) if layer.name == "layer")
    layer = original.layer[layer_index]

    def copy_net() -> Any:
        mutated_net = copy.deepcopy(original)
        return mutated_net, mutated_net.layer[layer_index]

    name = layer_types()[layer.type].signature.param or ""
    for field in getattr(layer, name).DESCRIPTOR.fields if name else ():
        for value in NUMBERS_BY_CPP_TYPE.get(field.cpp_type, ()):
            mutated_net, mutated_layer = copy_net()
            param = getattr(mutated_layer, name)
            old_value = getattr(param, field.name)
            if hasattr(old_value, "extend"):
                old_value[:] = [value] * max(1, len(old_value))
            else:
                setattr(param, field.name, value)
            yield mutated_net
    for i in range(len(layer.bottom)):
        mutated_net, mutated_layer = copy_net()
        del mutated_layer.bottom[i]
        yield mutated_net
    for n in (0, len(layer.top) + 1):
        mutated_net, mutated_layer = copy_net()
        mutated_layer.top[:] = [f"t{i}" for i in range(n)]
        yield mutated_net
    for i, source in enumerate(original.layer):
        for j, shape in enumerate(source.input_param.shape):
            dims = list(shape.dim)
            for new_dims in ([], dims[:-1], [*dims, 2], [0, *dims[1:]], [*dims[:-1], 0], [*dims[:-1], 3]):
                mutated_net, _ = copy_net()
                mutated_net.layer[i].input_param.shape[j].dim[:] = new_dims
                yield mutated_net


@pytest.mark.parametrize("name", _make_nets_by_type())
def test_mutants_build_or_fail_with_the_name_of_the_layer(name: str) -> None:
    text, phase = _make_nets_by_type()[name]
    for mutant in _generate_mutants(read_net(text)):
        message = "layer '"
        try:
            Net(mutant, phase)
        except CaffejaxError as error:
            message = str(error)
        assert "layer '" in message, mutant
