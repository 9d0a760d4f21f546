"""Batches divided among devices: the numbers that change in a definition, and layers that cannot be divided."""

from __future__ import annotations

import pytest
from google.protobuf import text_format

import caffejax.core.data  # noqa: F401  registers the layers
from caffejax.base.errors import GraphError
from caffejax.core.data.split_batch_size import split_batch_sizes
from caffejax.core.graph import make_net_state
from caffejax.core.layers import layer_types
from caffejax.core.layers.types import CallerInput, SourceInput
from caffejax.core.schema import read_net

# a layer's parameters with @ for what is to be divided
LAYERS = {
    "Data": "data_param { source: 'x' batch_size: @ }",
    "ImageData": "image_data_param { source: 'x' batch_size: @ } data_param { prefetch: 8 }",
    "HDF5Data": "hdf5_data_param { batch_size: @ }",
    "WindowData": "window_data_param { batch_size: @ }",
    "MemoryData": "memory_data_param { batch_size: @ channels: 8 height: 8 width: 8 }",
    "Input": "input_param { shape { dim: @ dim: 8 } shape { dim: @ } shape { } }",
    "DummyData": "dummy_data_param { shape { dim: @ dim: 8 } shape { dim: @ dim: 1 } data_filler { value: 3 } }",
    "DummyData of old": "dummy_data_param { num: @ num: @ channels: 8 height: 8 width: 8 }",
}


def net_text(*kinds: str, size: int | str = 8, include: str = "") -> str:
    """Return the text of a net with these layers, with each allowed number of tops."""
    return "".join(
        f"layer {{ name: 'of {kind}' type: '{kind.split()[0]}' top: '{kind} data' {include} "
        f"{LAYERS[kind].replace('@', str(size))} }}\n"
        for kind in kinds
    )


LSTM_LAYER = "layer { name: 'r' type: 'LSTM' bottom: 'x' top: 'y' lstm_param { num_output: 8 batch_size: 8 } }"
PARAMETER_LAYER = "layer { name: 'p' type: 'Parameter' top: 'w' parameter_param { shape { dim: 8 dim: 8 } } }"


@pytest.mark.parametrize("num_devices", [1, 2, 8])
@pytest.mark.parametrize("kind", LAYERS)
def test_only_the_batch_size_is_divided(kind: str, num_devices: int) -> None:
    text = net_text(kind) + LSTM_LAYER + PARAMETER_LAYER
    net = read_net(text)
    assert split_batch_sizes(net, num_devices) == read_net(
        net_text(kind, size=8 // num_devices) + LSTM_LAYER + PARAMETER_LAYER
    )
    assert net == read_net(text), "what was given has changed"


def test_every_data_layer_type_is_tested() -> None:
    data_types = {
        name
        for name, kind in layer_types().items()
        if isinstance(kind.implementation, SourceInput | CallerInput) and kind.docs.origin == "BVLC"
    }
    assert data_types <= {kind.split()[0] for kind in LAYERS}


def test_every_layer_that_cannot_be_divided_is_named() -> None:
    text = net_text("Data", "HDF5Data", size=6) + net_text("MemoryData", "Input", "DummyData of old", size=8)
    with pytest.raises(GraphError) as exc_info:
        split_batch_sizes(read_net(text), 4)
    advice = "make it a multiple of 4, or let each device process a full batch"
    assert str(exc_info.value).splitlines() == [
        f"layer 'of Data' (Data): data_param.batch_size is 6, which cannot be divided among 4 devices; {advice}",
        f"layer 'of HDF5Data' (HDF5Data): hdf5_data_param.batch_size is 6, which cannot be divided among 4 devices; "
        f"{advice}",
    ]


@pytest.mark.parametrize(
    ("layer", "setting"),
    [
        ("type: 'ImageData' image_data_param { source: 'x' }", "image_data_param.batch_size is 1"),  # the default
        ("type: 'Input' input_param { shape { dim: 8 } shape { dim: 3 } }", "input_param.shape.dim is 3"),
        ("type: 'DummyData' dummy_data_param { num: 1 channels: 8 }", "dummy_data_param.num is 1"),
    ],
)
def test_sizes_that_cannot_be_divided_are_named(layer: str, setting: str) -> None:
    with pytest.raises(GraphError, match=f"^layer 'd' .*: {setting}, which cannot be divided among 8 devices"):
        split_batch_sizes(read_net(f"layer {{ name: 'd' top: 'x' {layer} }}"), 8)


def test_python_layers_are_unchanged() -> None:
    """They divide what their code returns."""
    layer = "layer { name: 'd' type: 'Python' top: 'x' python_param { module: 'm' layer: 'L' } }"
    assert split_batch_sizes(read_net(layer), 2) == read_net(layer)


def test_layers_of_other_phases_are_unchanged() -> None:
    train, test = (f"include {{ phase: {phase} }}" for phase in ("TRAIN", "TEST"))
    net = read_net(net_text("Data", include=train) + net_text("HDF5Data", size=5, include=test))
    assert split_batch_sizes(net, 4, make_net_state(net, "TRAIN")) == read_net(
        net_text("Data", size=2, include=train) + net_text("HDF5Data", size=5, include=test)
    )
    with pytest.raises(GraphError, match="batch_size is 5"):
        split_batch_sizes(net, 4)


@pytest.mark.parametrize("kind", ["Data", "HDF5Data", "MemoryData"])
def test_a_batch_size_of_0_is_unchanged(kind: str) -> None:
    net = read_net(net_text(kind, size=0))
    assert split_batch_sizes(net, 4) == net
    text_format.Merge("layer { name: 'n' type: 'NoSuchType' top: 'x' }", net)
    assert split_batch_sizes(net, 4) == net


def test_upgraded_definitions_are_divided() -> None:
    net = read_net(
        "layers { name: 'd' type: DATA top: 'x' data_param { batch_size: 8 } } input: 'y' input_shape { dim: 4 }"
    )
    assert [layer.type for layer in net.layer] == ["Input", "Data"]
    split_net = split_batch_sizes(net, 4)
    assert split_net.layer[0].input_param.shape[0].dim == [1]
    assert split_net.layer[1].data_param.batch_size == 2
