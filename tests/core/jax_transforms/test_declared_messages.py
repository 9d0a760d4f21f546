"""Layer types declare all parameter messages that their layers read."""

from cases import EXTRA_FORK_CASES, FORK_CASES, LAYER_CASES

from caffejax.core.layers import type_of
from caffejax.core.schema import read_net
from caffejax.tools.layer_pages.descriptions import COMMON_PARAMS, list_param_fields


def test_types_declare_the_messages_of_their_settings() -> None:
    layers = [layer for case in (*LAYER_CASES, *EXTRA_FORK_CASES) for layer in read_net(case.prototxt(2)).layer]
    layers_by_message = {
        (layer.type, f.name): layer for layer in layers for f, _ in layer.ListFields() if f.name[-6:] == "_param"
    }
    undeclared = [
        key
        for key, layer in layers_by_message.items()
        if key[1] not in (*list_param_fields(type_of(layer)), *COMMON_PARAMS)
    ]
    assert len(layers_by_message) > (100 if FORK_CASES else 30)
    assert undeclared == []
