"""What forks write in one type's fields and later, or BVLC, in another type's."""

from __future__ import annotations

from .caffe_pb2 import LayerParameter, NetParameter

_TOPS = range(1, 5)  # the older form of cbfinn's MemoryData has fields for so many


def upgrade_softmax(net: NetParameter) -> list[str]:
    """Make a Softmax with cbfinn's `dimension: "spatial"` the SpatialSoftmax that the fork itself has for it later."""
    found = [layer for layer in net.layer if layer.type == "Softmax" and layer.softmax_param.dimension == "spatial"]
    for layer in found:
        layer.type = "SpatialSoftmax"
        layer.spatial_softmax_param.temperature = layer.softmax_param.temperature
        layer.ClearField("softmax_param")
    return ['softmax_param.dimension is old; write type: "SpatialSoftmax"'] if found else []


def upgrade_memory_data(net: NetParameter) -> list[str]:
    """Make MemoryData with cbfinn's shapes for all its tops, not BVLC's data and labels, an Input."""
    found = False
    for layer in net.layer:
        shapes = _memory_shapes(layer) if layer.type == "MemoryData" else []
        if shapes:
            found, layer.type = True, "Input"
            layer.ClearField("memory_data_param")
            for shape in shapes:
                layer.input_param.shape.add(dim=shape)
    return ["memory_data_param with the shapes of all tops is cbfinn's; write an Input layer"] if found else []


def _memory_shapes(layer: LayerParameter) -> list[list[int]]:
    p = layer.memory_data_param
    if p.input_shapes:
        return [list(shape.dim) for shape in p.input_shapes]
    if not p.channels1:
        return []
    return [
        [p.batch_size, *(getattr(p, f"{side}{i}") for side in ("channels", "height", "width"))]
        for i in _TOPS[: len(layer.top)]
    ]


def upgrade_statistics(net: NetParameter) -> list[str]:
    """Give each BatchNorm that has none of its own Intel's `bn_stats_batch_size` of the net."""
    size = net.bn_stats_batch_size
    for layer in net.layer if size else ():
        if layer.type == "BatchNorm" and not layer.batch_norm_param.HasField("stats_batch_size"):
            layer.batch_norm_param.stats_batch_size = size
    net.ClearField("bn_stats_batch_size")
    return []
