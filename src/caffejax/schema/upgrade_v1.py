"""V1 layers (2014, `layers { type: CONVOLUTION }`) to current ones."""

from __future__ import annotations

from ..errors import SchemaError
from .caffe_pb2 import LayerParameter, NetParameter, ParamSpec, V1LayerParameter

# Most names are the enum's words with capitals; these are not.
_IRREGULAR = {
    "NONE": "",
    "ABSVAL": "AbsVal",
    "ARGMAX": "ArgMax",
    "BN": "BN",
    "BNLL": "BNLL",
    "CONVOLUTION3D": "Convolution3D",
    "DECONVOLUTION3D": "Deconvolution3D",
    "HDF5_DATA": "HDF5Data",
    "HDF5_OUTPUT": "HDF5Output",
    "IMAGE_SEG_DATA": "ImageSegData",
    "LRN": "LRN",
    "MULTI_STAGE_MEANFIELD": "MultiStageMeanfield",
    "MVN": "MVN",
    "POOLING3D": "Pooling3D",
    "RELU": "ReLU",
    "RELU6": "ReLU6",
    "ROIPOOLING": "ROIPooling",
    "SOFTMAX_LOSS": "SoftmaxWithLoss",
    "TANH": "TanH",
    "UNPOOLING": "UnPooling",
}
_COPIED = ("bottom", "top", "loss_weight")
_SHARE_MODES = {
    V1LayerParameter.STRICT: ParamSpec.STRICT,
    V1LayerParameter.PERMISSIVE: ParamSpec.PERMISSIVE,
}


def type_name(number: int) -> str:
    """Return today's name of a layer type of V1Layer's enum.

    Raises:
        SchemaError: for a number that the enum does not have.
    """
    names = V1LayerParameter.LayerType.DESCRIPTOR.values_by_number
    if number not in names:
        raise SchemaError(f"there is no V1 layer type {number}")
    name = names[number].name
    return _IRREGULAR.get(name, "".join(word.capitalize() for word in name.split("_")))


def upgrade_v1(net: NetParameter) -> list[str]:
    """Turn `layers` into `layer`."""
    for old in net.layers:
        _upgrade_layer(old, net.layer.add())
    del net.layers[:]
    return []


def _upgrade_layer(old: V1LayerParameter, new: LayerParameter) -> None:
    for field, value in old.ListFields():
        if field.message_type and field.name in new.DESCRIPTOR.fields_by_name:
            target = getattr(new, field.name)
            target.extend(value) if field.is_repeated else target.CopyFrom(value)
    for name in _COPIED:
        getattr(new, name).extend(getattr(old, name))
    if old.HasField("name"):
        new.name = old.name
    if old.HasField("strict_dim"):
        new.strict_dim = old.strict_dim
    if old.HasField("type"):
        new.type = type_name(old.type)
    if len(old.softmaxloss_param.ignore_label) == 1 and not old.loss_param.HasField("ignore_label"):  # DeepLab's
        new.loss_param.ignore_label = old.softmaxloss_param.ignore_label[0]
        del new.softmaxloss_param.ignore_label[:]
    counts = len(old.param), len(old.blob_share_mode), len(old.blobs_lr), len(old.weight_decay)
    for _ in range(max(counts)):
        new.param.add()
    for spec, name in zip(new.param, old.param, strict=False):
        spec.name = name
    for spec, mode in zip(new.param, old.blob_share_mode, strict=False):
        spec.share_mode = _SHARE_MODES[mode]
    for spec, rate in zip(new.param, old.blobs_lr, strict=False):
        spec.lr_mult = rate
    for spec, decay in zip(new.param, old.weight_decay, strict=False):
        spec.decay_mult = decay
