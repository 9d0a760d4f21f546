"""Batches of forks' data layers are divided among devices."""

import pytest

from caffejax.core.data.split_batch_size import split_batch_sizes
from caffejax.core.layers import layer_types
from caffejax.core.layers.types import CallerInput, SourceInput
from caffejax.core.schema import read_net

# a layer's parameters with @ for what is to be divided
LAYERS = {
    "AnnotatedData": "data_param { source: 'x' batch_size: @ } annotated_data_param { label_map_file: 'y' }",
    "LaneData": "data_param { source: 'x' batch_size: @ } annotated_data_param { seg_scales: 8 }",
    "ImageSegData": "image_data_param { batch_size: @ label_type: PIXEL }",
    "ImageLabelmapData": "image_data_param { batch_size: @ }",
    "DenseImageData": "dense_image_data_param { batch_size: @ }",
    "VideoData": "video_data_param { source: 'x' batch_size: @ }",
    "VideoData of C3D 1.0": "image_data_param { source: 'x' batch_size: @ }",
    "ImageGtData": "image_gt_data_param { source: 'x' batch_size: @ }",
    "FrcnnRoiData": "window_data_param { source: 'x' config: 'y' }",  # one image for each device
    "BoxData": "data_param { source: 'x' batch_size: @ side: 7 }",
    "CustomData": "data_param { source: 'x' batch_size: @ slice_point: 3 }",
    "CPMData": "data_param { source: 'x' batch_size: @ }",
    "ContinuationIndicator": "continuation_indicator_param { time_step: 8 batch_size: @ }",
}


def net_text(kind: str, size: int) -> str:
    return f"layer {{ name: 'l' type: '{kind.split()[0]}' top: 'x' {LAYERS[kind].replace('@', str(size))} }}"


@pytest.mark.parametrize("num_devices", [1, 2, 8])
@pytest.mark.parametrize("kind", LAYERS)
def test_only_the_batch_size_is_divided(kind: str, num_devices: int) -> None:
    net = read_net(net_text(kind, 8))
    assert split_batch_sizes(net, num_devices) == read_net(net_text(kind, 8 // num_devices))
    assert net == read_net(net_text(kind, 8)), "what was given has changed"


def test_every_data_layer_type_is_tested() -> None:
    fork_types = {name: t for name, t in layer_types().items() if t.docs.origin != "BVLC"}
    data_types = {name for name, t in fork_types.items() if isinstance(t.implementation, SourceInput | CallerInput)}
    assert data_types <= {kind.split()[0] for kind in LAYERS}
