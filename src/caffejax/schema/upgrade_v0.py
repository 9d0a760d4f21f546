"""V0 layers (2013, `layers { layer { type: "conv" } }`) to V1.

A V0 layer is one flat message for all types; each field belongs into the sub-message of the layer's type.
"""

from __future__ import annotations

from google.protobuf.descriptor import FieldDescriptor

from ..errors import Problem, SchemaError, did_you_mean
from .caffe_pb2 import NetParameter, V0LayerParameter, V1LayerParameter

_TYPES = {
    "accuracy": V1LayerParameter.ACCURACY,
    "bnll": V1LayerParameter.BNLL,
    "concat": V1LayerParameter.CONCAT,
    "conv": V1LayerParameter.CONVOLUTION,
    "data": V1LayerParameter.DATA,
    "dropout": V1LayerParameter.DROPOUT,
    "euclidean_loss": V1LayerParameter.EUCLIDEAN_LOSS,
    "flatten": V1LayerParameter.FLATTEN,
    "hdf5_data": V1LayerParameter.HDF5_DATA,
    "hdf5_output": V1LayerParameter.HDF5_OUTPUT,
    "im2col": V1LayerParameter.IM2COL,
    "images": V1LayerParameter.IMAGE_DATA,
    "infogain_loss": V1LayerParameter.INFOGAIN_LOSS,
    "innerproduct": V1LayerParameter.INNER_PRODUCT,
    "lrn": V1LayerParameter.LRN,
    "multinomial_logistic_loss": V1LayerParameter.MULTINOMIAL_LOGISTIC_LOSS,
    "pool": V1LayerParameter.POOLING,
    "relu": V1LayerParameter.RELU,
    "sigmoid": V1LayerParameter.SIGMOID,
    "softmax": V1LayerParameter.SOFTMAX,
    "softmax_loss": V1LayerParameter.SOFTMAX_LOSS,
    "split": V1LayerParameter.SPLIT,
    "tanh": V1LayerParameter.TANH,
    "window_data": V1LayerParameter.WINDOW_DATA,
}

_CONV, _INNER, _POOL = "convolution_param", "inner_product_param", "pooling_param"
_DATA, _IMAGES, _HDF5, _WINDOW = "data_param", "image_data_param", "hdf5_data_param", "window_data_param"

_PLACES: dict[str, dict[str, tuple[str, str]]] = {
    # V0 field: {V0 type: (sub-message, field in it)}
    "num_output": {"conv": (_CONV, "num_output"), "innerproduct": (_INNER, "num_output")},
    "biasterm": {"conv": (_CONV, "bias_term"), "innerproduct": (_INNER, "bias_term")},
    "weight_filler": {"conv": (_CONV, "weight_filler"), "innerproduct": (_INNER, "weight_filler")},
    "bias_filler": {"conv": (_CONV, "bias_filler"), "innerproduct": (_INNER, "bias_filler")},
    "pad": {"conv": (_CONV, "pad"), "pool": (_POOL, "pad")},
    "kernelsize": {"conv": (_CONV, "kernel_size"), "pool": (_POOL, "kernel_size")},
    "stride": {"conv": (_CONV, "stride"), "pool": (_POOL, "stride")},
    "group": {"conv": (_CONV, "group")},
    "pool": {"pool": (_POOL, "pool")},
    "dropout_ratio": {"dropout": ("dropout_param", "dropout_ratio")},
    "local_size": {"lrn": ("lrn_param", "local_size")},
    "alpha": {"lrn": ("lrn_param", "alpha")},
    "beta": {"lrn": ("lrn_param", "beta")},
    "k": {"lrn": ("lrn_param", "k")},
    "source": {
        "data": (_DATA, "source"),
        "hdf5_data": (_HDF5, "source"),
        "images": (_IMAGES, "source"),
        "window_data": (_WINDOW, "source"),
        "infogain_loss": ("infogain_loss_param", "source"),
    },
    "batchsize": {
        "data": (_DATA, "batch_size"),
        "hdf5_data": (_HDF5, "batch_size"),
        "images": (_IMAGES, "batch_size"),
        "window_data": (_WINDOW, "batch_size"),
    },
    "rand_skip": {"data": (_DATA, "rand_skip"), "images": (_IMAGES, "rand_skip")},
    "shuffle_images": {"images": (_IMAGES, "shuffle")},
    "new_height": {"images": (_IMAGES, "new_height")},
    "new_width": {"images": (_IMAGES, "new_width")},
    "concat_dim": {"concat": ("concat_param", "concat_dim")},
    "det_fg_threshold": {"window_data": (_WINDOW, "fg_threshold")},
    "det_bg_threshold": {"window_data": (_WINDOW, "bg_threshold")},
    "det_fg_fraction": {"window_data": (_WINDOW, "fg_fraction")},
    "det_context_pad": {"window_data": (_WINDOW, "context_pad")},
    "det_crop_mode": {"window_data": (_WINDOW, "crop_mode")},
}
_TRANSFORMS = {"scale": "scale", "meanfile": "mean_file", "cropsize": "crop_size", "mirror": "mirror"}


def upgrade_v0(net: NetParameter) -> list[str]:
    """Turn V0 layers into V1 layers, and padding layers into the `pad` of the layers behind them."""
    if not any(layer.HasField("layer") for layer in net.layers):
        return []
    warnings: list[str] = []
    new = NetParameter(input=net.input, input_dim=net.input_dim)
    for name in ("name", "force_backward"):  # the rest came later; Caffe drops it
        if net.HasField(name):
            setattr(new, name, getattr(net, name))
    problems: list[Problem] = []
    for layer in _fold_padding(net):
        upgrade = _upgrade_layer if layer.HasField("layer") else _upgrade_v1_between
        try:
            warnings += upgrade(layer, new.layers.add())
        except SchemaError as error:
            problems += error.problems
    if problems:
        raise SchemaError(problems)
    net.CopyFrom(new)
    return warnings


def _fold_padding(net: NetParameter) -> list[V1LayerParameter]:
    """Remove the padding layers, and give their `pad` to the convolutions and poolings that they feed."""
    remaining: list[V1LayerParameter] = []
    producers: dict[str, V1LayerParameter] = {}
    for layer in net.layers:
        for i, bottom in enumerate(layer.bottom):
            source = producers.get(bottom)
            if source is None or source.layer.type != "padding":
                continue
            problem = ""
            if layer.layer.type not in ("conv", "pool"):
                problem = "only conv and pool can follow a padding layer"
            elif len(layer.bottom) != 1 or len(source.bottom) != 1 or len(source.top) != 1:
                problem = "a padding layer and the layer after it take one blob"
            if problem:
                raise SchemaError(Problem(problem, layer=layer.layer.name, layer_type=layer.layer.type))
            layer.layer.pad = source.layer.pad
            layer.bottom[i] = source.bottom[0]
        producers.update(dict.fromkeys(layer.top, layer))
        if layer.layer.type != "padding":
            remaining.append(layer)
    return remaining


def _upgrade_layer(old: V1LayerParameter, new: V1LayerParameter) -> list[str]:
    """Fill `new`; return a warning for every field that has no place in a layer of that type."""
    flat, warnings = old.layer, []
    new.bottom.extend(old.bottom)
    new.top.extend(old.top)
    for field, value in flat.ListFields():
        if field.name == "name":
            new.name = value
        elif field.name == "type":
            new.type = _v1_type(flat)
        elif field.name in ("blobs", "blobs_lr", "weight_decay"):
            getattr(new, field.name).extend(value)
        elif field.name in _TRANSFORMS:
            setattr(new.transform_param, _TRANSFORMS[field.name], value)
        elif field.name == "hdf5_output_param" and flat.type == "hdf5_output":
            new.hdf5_output_param.CopyFrom(value)
        elif flat.type in _PLACES.get(field.name, {}):
            _set_field(new, *_PLACES[field.name][flat.type], value)
        else:
            warnings.append(f"layer '{flat.name}': {field.name} means nothing to type '{flat.type}' and is dropped")
    return warnings


def _upgrade_v1_between(old: V1LayerParameter, new: V1LayerParameter) -> list[str]:
    """Fill `new` from a V1 layer in a file with V0 layers. Caffe takes it for one of these, and finds it empty."""
    new.bottom.extend(old.bottom)
    new.top.extend(old.top)
    lost = [field.name for field, _ in old.ListFields() if field.name not in ("bottom", "top")]
    if not lost:
        return []
    return [
        f"layer '{old.name}' is a V1 layer in a file with V0 layers, where Caffe reads only bottom and top: "
        f"{', '.join(lost)} {'is' if len(lost) == 1 else 'are'} dropped; write all layers in one form"
    ]


def _set_field(layer: V1LayerParameter, param: str, name: str, value: object) -> None:
    message = getattr(layer, param)
    field: FieldDescriptor = message.DESCRIPTOR.fields_by_name[name]
    if field.is_repeated:
        getattr(message, name).append(value)
    elif field.message_type:
        getattr(message, name).CopyFrom(value)
    else:
        setattr(message, name, value)


def _v1_type(flat: V0LayerParameter) -> V1LayerParameter.LayerType:
    if flat.type not in _TYPES:
        hint = did_you_mean(flat.type, _TYPES)
        raise SchemaError(Problem(f"there is no V0 layer type '{flat.type}'{hint}", layer=flat.name))
    return _TYPES[flat.type]
