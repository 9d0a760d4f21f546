"""Small upgrades within a version: transformations, inputs, BatchNorm."""

from __future__ import annotations

from ..errors import SchemaError
from .caffe_pb2 import NetParameter, V1LayerParameter

_DATA_PARAMS = {
    V1LayerParameter.DATA: "data_param",
    V1LayerParameter.IMAGE_DATA: "image_data_param",
    V1LayerParameter.WINDOW_DATA: "window_data_param",
}
_MOVED = ("scale", "mean_file", "crop_size", "mirror")


def upgrade_transforms(net: NetParameter) -> list[str]:
    """Move scale, mean_file, crop_size and mirror of V1 data layers into transform_param.

    Only of V1 layers: in current ones Caffe leaves them, where they have no effect.
    """
    moved = False
    for layer in net.layers:
        if layer.type not in _DATA_PARAMS:
            continue
        data = getattr(layer, _DATA_PARAMS[layer.type])
        for name in _MOVED:
            if data.HasField(name):
                setattr(layer.transform_param, name, getattr(data, name))
                data.ClearField(name)
                moved = True
    return [f"{', '.join(_MOVED)} in data layers are old; they belong into transform_param"] if moved else []


def upgrade_inputs(net: NetParameter) -> list[str]:
    """Turn the net's own `input` fields into an Input layer, which comes first."""
    if not net.input:
        return []
    names, shapes, dims = list(net.input), [list(s.dim) for s in net.input_shape], list(net.input_dim)
    if not shapes:
        shapes = [dims[i : i + 4] for i in range(0, len(dims) - 3, 4)]
    if len(shapes) < len(names) and (shapes or dims):
        raise SchemaError(
            f"{len(names)} inputs ({', '.join(names)}) but {len(shapes)} shapes; "
            "each takes one input_shape or four input_dim"
        )
    del net.input[:], net.input_shape[:], net.input_dim[:]
    if not shapes:
        return [f"input '{name}' has no shape and is dropped; write an Input layer" for name in names]
    layers = list(net.layer)
    del net.layer[:]
    layer = net.layer.add(name="input", type="Input", top=names)
    for shape in shapes[: len(names)]:
        layer.input_param.shape.add(dim=shape)
    net.layer.extend(layers)
    return ["input fields are old; write an Input layer, as `caffejax upgrade_net_proto_text` does"]


def upgrade_batch_norms(net: NetParameter) -> list[str]:
    """Freeze the statistics of BatchNorm layers that list them as `param`: no solver may touch them."""
    for layer in net.layer:
        if layer.type == "BatchNorm" and len(layer.param) == 3:
            for param in layer.param:
                param.lr_mult = param.decay_mult = 0
    return []
