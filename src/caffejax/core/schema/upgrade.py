"""Upgrades of old nets and solvers, in the same order as in Caffe's upgrade tools."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from google.protobuf.message import Message

from ...base.errors import Problem, SchemaError, did_you_mean, raise_if_any
from ...base.human_readable import format_count
from .caffe_pb2 import (
    AnnotatedDatum,
    ConvolutionParameter,
    LayerParameter,
    NetParameter,
    SolverParameter,
    V0LayerParameter,
    V1LayerParameter,
)

# other names are formed from the enum's words: INNER_PRODUCT becomes InnerProduct
_IRREGULAR_V1_NAMES = {
    "NONE": "",
    "HDF5_DATA": "HDF5Data",
    "HDF5_OUTPUT": "HDF5Output",
    "SOFTMAX_LOSS": "SoftmaxWithLoss",
    **{name.upper(): name for name in ("AbsVal", "ArgMax", "BN", "BNLL", "LRN", "MVN", "ReLU", "ReLU6", "TanH")},
    **{name.upper(): name for name in ("Convolution3D", "Deconvolution3D", "Pooling3D", "ROIPooling", "UnPooling")},
}


def _get_v1_type_name(number: int) -> str:
    names = V1LayerParameter.LayerType.DESCRIPTOR.values_by_number
    if number not in names:
        raise SchemaError(f"there is no V1 layer type {number}")
    name = names[number].name
    return _IRREGULAR_V1_NAMES.get(name, "".join(word.capitalize() for word in name.split("_")))


def upgrade_v1(net: NetParameter) -> None:
    """Convert V1 layers (`layers`) to current layers (`layer`)."""
    for old in net.layers:
        _upgrade_v1_layer(old, net.layer.add())
    del net.layers[:]


# the fields of ParamSpec that replace fields of V1 layers; the share modes have the same numbers in both versions
_SPEC_FIELDS = {"param": "name", "blob_share_mode": "share_mode", "blobs_lr": "lr_mult", "weight_decay": "decay_mult"}


def _upgrade_v1_layer(old: V1LayerParameter, new: LayerParameter) -> None:
    for field, value in old.ListFields():
        if field.name == "type":
            new.type = _get_v1_type_name(old.type)
        elif field.name in _SPEC_FIELDS:
            for i, item in enumerate(value):
                spec = new.param[i] if i < len(new.param) else new.param.add()
                setattr(spec, _SPEC_FIELDS[field.name], item)
        elif field.name in new.DESCRIPTOR.fields_by_name:
            _set_field(new, field.name, value)


_DATA_PARAMS = {
    V1LayerParameter.DATA: "data_param",
    V1LayerParameter.IMAGE_DATA: "image_data_param",
    V1LayerParameter.WINDOW_DATA: "window_data_param",
}
_TRANSFORM_FIELDS = ("scale", "mean_file", "crop_size", "mirror")


def upgrade_transforms(net: NetParameter) -> list[str]:
    """Move scale, mean_file, crop_size and mirror of V1 data layers to transform_param.

    Caffe does this for V1 layers only. In current layers these fields have no effect.
    """
    is_changed = False
    for layer in net.layers:
        data: Any = getattr(layer, _DATA_PARAMS.get(layer.type, ""), None)
        for name in _TRANSFORM_FIELDS if data is not None else ():
            if data.HasField(name):
                setattr(layer.transform_param, name, getattr(data, name))
                data.ClearField(name)
                is_changed = True
    warning = f"{', '.join(_TRANSFORM_FIELDS)} in data layers are old; move them to transform_param"
    return [warning] if is_changed else []


def upgrade_inputs(net: NetParameter) -> list[str]:
    """Convert the net's `input` fields to an Input layer at the start of the net."""
    if not net.input:
        return []
    names, shapes, dims = list(net.input), [list(s.dim) for s in net.input_shape], list(net.input_dim)
    if not shapes:
        shapes = [dims[i : i + 4] for i in range(0, len(dims) - 3, 4)]
    if len(shapes) < len(names) and (shapes or dims):
        raise SchemaError(
            f"the net has {format_count(len(names), 'input')} ({', '.join(names)}), but "
            f"{format_count(len(shapes), 'input shape')}; "
            "each input needs one input_shape or four input_dim"
        )
    del net.input[:], net.input_shape[:], net.input_dim[:]
    if not shapes:
        return [f"input '{name}' has no shape and is dropped, as in Caffe; write an Input layer" for name in names]
    layer = LayerParameter(name="input", type="Input", top=names)
    for shape in shapes[: len(names)]:
        layer.input_param.shape.add(dim=shape)
    net.layer.insert(0, layer)
    return ["input fields are old; write an Input layer, as `caffejax upgrade OLD NEW` does"]


def upgrade_batch_norms(net: NetParameter) -> None:
    """Set lr_mult and decay_mult to 0 in BatchNorm layers with three `param` entries, which apply to statistics."""
    for layer in net.layer:
        if layer.type == "BatchNorm" and len(layer.param) == 3:
            for param in layer.param:
                param.lr_mult = param.decay_mult = 0


def upgrade_softmax(net: NetParameter) -> list[str]:
    """Rename each Softmax with `dimension: "spatial"` to SpatialSoftmax, its later name in cbfinn's fork."""
    layers = [layer for layer in net.layer if layer.type == "Softmax" and layer.softmax_param.dimension == "spatial"]
    for layer in layers:
        layer.type = "SpatialSoftmax"
        layer.spatial_softmax_param.temperature = layer.softmax_param.temperature
        layer.ClearField("softmax_param")
    return ['softmax_param.dimension is old; write type: "SpatialSoftmax"'] if layers else []


def upgrade_memory_data(net: NetParameter) -> list[str]:
    """Convert each MemoryData layer that has the shape fields of cbfinn's fork to an Input layer with these shapes.

    Nets with the older fields, such as `channels1`, are of a time when all blobs in Caffe had four axes. Therefore the
    tops of their InnerProduct layers get four axes.
    """
    is_changed = has_older_fields = False
    for layer in net.layer:
        shapes = _memory_shapes(layer) if layer.type == "MemoryData" else []
        if shapes:
            has_older_fields |= not layer.memory_data_param.input_shapes
            is_changed, layer.type = True, "Input"
            layer.ClearField("memory_data_param")
            for shape in shapes:
                layer.input_param.shape.add(dim=shape)
    for layer in net.layer if has_older_fields else ():
        if layer.type == "InnerProduct":
            layer.inner_product_param.min_top_axes = 4
    return ["memory_data_param with the shapes of all tops is cbfinn's; write an Input layer"] if is_changed else []


def _memory_shapes(layer: LayerParameter) -> list[list[int]]:
    p = layer.memory_data_param
    if p.input_shapes:
        return [list(shape.dim) for shape in p.input_shapes]
    numbers = range(1, 5)[: len(layer.top)] if p.channels1 else ()  # of the tops, in cbfinn's older fields
    return [[p.batch_size, *(getattr(p, f"{side}{i}") for side in ("channels", "height", "width"))] for i in numbers]


def upgrade_stats_batch_size(net: NetParameter) -> None:
    """Copy the net's `bn_stats_batch_size`, a field of Intel's fork, to each BatchNorm layer that does not set it."""
    size = net.bn_stats_batch_size
    for layer in net.layer if size else ():
        if layer.type == "BatchNorm" and not layer.batch_norm_param.HasField("stats_batch_size"):
            layer.batch_norm_param.stats_batch_size = size
    net.ClearField("bn_stats_batch_size")


def drop_inactive_settings(net: NetParameter) -> None:
    """Drop settings that MyCaffe marks as inactive, and rename MyCaffe's fields to the names in other forks.

    The fields that mark settings, `active` and `option`, are removed as well.
    """
    for layer in net.layer:
        for name, new_name in (("normalization2_param", "norm_param"), ("multiboxloss_param", "multibox_loss_param")):
            _rename_field(layer, name, new_name)
        for name in ("transform_param", "detection_output_param", "detection_evaluate_param", "multibox_loss_param"):
            if layer.HasField(name):
                _drop_inactive_messages(getattr(layer, name))
        _rename_field(layer.norm_param, "esp", "eps")  # MyCaffe's spelling of eps
        _rename_field(layer.unpooling_param, "pool", "unpool")
        for name, new_name in (("distortion_param", "distort_param"), ("expansion_param", "expand_param")):
            _rename_field(layer.transform_param, name, new_name)
        if layer.annotated_data_param.anno_type == AnnotatedDatum.NONE:  # MyCaffe writes it for an unset field
            layer.annotated_data_param.ClearField("anno_type")


_BIAS_PARAMS = {
    "Convolution": "convolution_param",
    "Deconvolution": "convolution_param",
    "InnerProduct": "inner_product_param",
}


def drop_bias_multipliers(net: NetParameter) -> list[str]:
    """Drop the second `param` of layers with `bias_term: false`, which have no bias. MyCaffe ignores it."""
    layer_names = []
    for layer in net.layer:
        settings = getattr(layer, _BIAS_PARAMS.get(layer.type, ""), None)
        if len(layer.param) != 2 or settings is None or settings.bias_term:
            continue
        if not getattr(settings, "enable_noise", False):  # the noise has a second blob
            del layer.param[1:]
            layer_names.append(layer.name)
    if not layer_names:
        return []
    layers = ", ".join(map(repr, layer_names))
    return [f"the second param of a layer without bias is ignored, which BVLC Caffe refuses; remove it: {layers}"]


def _rename_field(message: Message, name: str, new_name: str) -> None:
    if message.HasField(name):
        _set_field(message, new_name, getattr(message, name))
        message.ClearField(name)


def _set_field(message: Message, name: str, value: Any) -> None:
    field = message.DESCRIPTOR.fields_by_name[name]
    if field.is_repeated:
        getattr(message, name).extend(value if hasattr(value, "extend") else [value])
    elif field.message_type:
        getattr(message, name).CopyFrom(value)
    else:
        setattr(message, name, value)


def expand_layers(net: NetParameter) -> None:
    """Expand layers with certain settings of MyCaffe or Intel's fork into several layers.

    An InnerProduct with min_top_axes is followed by a Reshape that appends axes of size 1 to the top. A recurrent layer
    with num_layers becomes a stack of layers, with Dropout between them. A Concat with Intel's per_fla_fuse is preceded
    by layers that permute and flatten each bottom. A layer with Intel's `relu` is followed by a ReLU.
    """
    layers: list[LayerParameter] = []
    for layer in net.layer:
        relu = _split_relu(layer)
        if layer.HasField("inner_product_param"):
            layers += _append_axes(layer)
        elif layer.HasField("recurrent_param"):
            layers += _build_stack(layer)
        elif layer.concat_param.per_fla_fuse:
            layers += _flatten_bottoms(layer)
        else:
            layers.append(layer)
        layers += relu
    if len(layers) > len(net.layer):
        copies = NetParameter(layer=layers)
        del net.layer[:]
        net.layer.extend(copies.layer)


def _new_layer(template: LayerParameter, name: str, type: str, bottom: str, top: str) -> LayerParameter:
    include, exclude = template.include, template.exclude
    return LayerParameter(name=name, type=type, bottom=[bottom], top=[top], include=include, exclude=exclude)


def _append_axes(layer: LayerParameter) -> list[LayerParameter]:
    p = layer.inner_product_param
    min_axes, num_leading = p.min_top_axes, p.axis + 1
    p.ClearField("min_top_axes")
    if not min_axes > num_leading > 0 or len(layer.top) != 1:
        return [layer]
    reshape = _new_layer(layer, f"{layer.name}_axes", "Reshape", f"{layer.top[0]}_rows", layer.top[0])
    reshape.reshape_param.shape.dim.extend([0] * num_leading + [1] * (min_axes - num_leading))
    layer.top[0] = reshape.bottom[0]
    return [layer, reshape]


_RELU_PARAMS = {
    "BatchNorm": "batch_norm_param",
    "Convolution": "convolution_param",
    "InnerProduct": "inner_product_param",
}


def _split_relu(layer: LayerParameter) -> list[LayerParameter]:
    """Clear a layer's `relu` and `negative_slope`; return the ReLU layer that replaces them, in place on the top."""
    settings: Any = getattr(layer, _RELU_PARAMS.get(layer.type, ""), None)
    if settings is None or not settings.relu or len(layer.top) != 1 or settings.engine == settings.CAFFE:
        return []  # Caffe's engine ignores relu
    relu = _new_layer(layer, f"{layer.name}_relu", "ReLU", layer.top[0], layer.top[0])
    settings.ClearField("relu")
    if slope := getattr(settings, "negative_slope", 0):
        relu.relu_param.negative_slope = slope
        settings.ClearField("negative_slope")
    return [relu]


def _flatten_bottoms(layer: LayerParameter) -> list[LayerParameter]:
    p = layer.concat_param
    new_layers: list[LayerParameter] = []
    p.ClearField("per_fla_fuse")
    if (p.concat_dim if p.HasField("concat_dim") else p.axis) != 1:
        return [layer]  # Intel Caffe then ignores it, too
    for k, bottom in enumerate(layer.bottom):
        permuted_name, flat_name = f"{layer.name}_permuted_{k}", f"{layer.name}_flat_{k}"
        permute = _new_layer(layer, permuted_name, "Permute", bottom, permuted_name)
        permute.permute_param.order.extend([0, 2, 3, 1])
        reshape = _new_layer(layer, flat_name, "Reshape", permuted_name, flat_name)
        reshape.reshape_param.shape.dim.extend([0, -1, 1, 1])
        layer.bottom[k] = flat_name
        new_layers += [permute, reshape]
    return [*new_layers, layer]


def _build_stack(layer: LayerParameter) -> list[LayerParameter]:
    p = layer.recurrent_param
    if p.num_layers > 1 and (p.expose_hidden or len(layer.top) != 1 or p.num_layers > _MAX_LAYERS):
        return [layer]  # the layer itself then reports num_layers as an error
    num_layers, ratio = p.num_layers, p.dropout_ratio
    p.ClearField("num_layers")
    p.ClearField("dropout_ratio")  # the Dropout layers between the layers have it
    stack: list[LayerParameter] = []
    for k in range(1, num_layers):
        lower_layer = LayerParameter()
        lower_layer.CopyFrom(layer)
        lower_layer.name, lower_layer.top[0] = f"{layer.name}_{k}", f"{layer.top[0]}_{k}"
        layer.bottom[0] = lower_layer.top[0]
        stack.append(lower_layer)
        if ratio:
            dropout = _new_layer(layer, f"{layer.name}_drop_{k}", "Dropout", lower_layer.top[0], lower_layer.top[0])
            dropout.dropout_param.dropout_ratio = ratio
            stack.append(dropout)
    return [*stack, layer]


_MAX_LAYERS = 1000  # the largest number of layers in a stack


def _drop_inactive_messages(message: Message) -> None:
    """Drop each message inside `message` whose `active` or `option.active` is false, and clear these two fields."""
    for field, value in message.ListFields():
        if not field.message_type:
            continue
        messages = list(value) if field.is_repeated else [value]
        has_active_field = "option" in field.message_type.fields_by_name
        remaining = [x for x in messages if not has_active_field or (x.active and x.option.active)]
        for x in remaining:
            for mark in ("active", "option") if has_active_field else ():
                x.ClearField(mark)
            _drop_inactive_messages(x)
        if len(remaining) < len(messages) and field.is_repeated:
            del value[:]
            value.extend(remaining)
        elif not remaining:
            message.ClearField(field.name)


def rename_fork_settings(net: NetParameter) -> None:
    """Replace settings that are other names for BVLC Caffe's by these.

    They are `hole` (DeepLab) and `dilation_h` (yjxiong/caffe) for `dilation`, `ceil_mode` for `round_mode`,
    DeepLab's softmaxloss_param for loss_param, and cpmdata_param with transform_param (convolutional pose machines) for
    data_param with OpenPose's cpm_transform_param.

    Raises:
        SchemaError: if a setting is set twice or incompletely, or has no other name. It contains all problems.
    """
    problems = []
    for layer in net.layer:
        message = None
        if layer.type in ("Convolution", "Deconvolution", "Im2col"):
            message = _rename_dilation(layer.convolution_param)
        elif layer.type == "Pooling" and layer.pooling_param.HasField("ceil_mode"):
            if not layer.pooling_param.ceil_mode:
                layer.pooling_param.round_mode = layer.pooling_param.FLOOR
            layer.pooling_param.ClearField("ceil_mode")
        elif layer.type == "CPMData" and layer.HasField("cpmdata_param"):
            message = _rename_cpm_data(layer)
        elif layer.HasField("softmaxloss_param"):
            message = _rename_ignored_label(layer)
        if message is not None:
            problems.append(Problem(message, layer=layer.name, layer_type=layer.type))
    raise_if_any(SchemaError, problems)


_DILATIONS = (("hole",), ("hole_h", "hole_w"), ("dilation_h", "dilation_w"))  # for all axes, or for height and width


def _rename_dilation(p: ConvolutionParameter) -> str | None:
    fork_names = [names for names in _DILATIONS if any(p.HasField(name) for name in names)]
    all_names = [*fork_names, *([("dilation",)] if p.dilation else [])]
    if len(all_names) > 1:
        return f"{all_names[0][0]} and {all_names[1][0]} mean the same; set only one of them"
    for names in fork_names:
        if not all(p.HasField(name) for name in names):
            return f"set both of {' and '.join(names)}"
        p.dilation.extend(getattr(p, name) for name in names)
        for name in names:
            p.ClearField(name)
    return None


def _rename_ignored_label(layer: LayerParameter) -> str | None:
    p, loss = layer.softmaxloss_param, layer.loss_param
    if len(p.ignore_label) == 1 and not loss.HasField("ignore_label"):
        loss.ignore_label = p.ignore_label[0]
        del p.ignore_label[:]
    if settings := ", ".join(field.name for field, _ in p.ListFields()):
        return f"setting softmaxloss_param.{settings} (of deeplab) is not supported, except a single ignore_label"
    layer.ClearField("softmaxloss_param")
    return None


_CPM_DATA_FIELDS = ("source", "batch_size", "backend", "rand_skip", "prefetch")  # the others have no effect in the fork


def _rename_cpm_data(layer: LayerParameter) -> str | None:
    names = [name for name in ("data_param", "cpm_transform_param") if layer.HasField(name)]
    if names:
        return f"cpmdata_param and {names[0]} cannot be set together; remove one of them"
    for field, value in layer.cpmdata_param.ListFields():
        if field.name in _CPM_DATA_FIELDS:
            setattr(layer.data_param, field.name, value)
    target = layer.cpm_transform_param
    target.SetInParent()
    for field, value in layer.transform_param.ListFields():
        if field.name not in target.DESCRIPTOR.fields_by_name:
            return f"setting transform_param.{field.name} is not one of CPMData's"
        _set_field(target, field.name, value)
    layer.ClearField("cpmdata_param")
    layer.ClearField("transform_param")
    return None


_SOLVER_TYPES = {  # by names in capitals, which the enum of old files and MyCaffe use
    name.upper(): name for name in ("SGD", "Nesterov", "AdaGrad", "RMSProp", "AdaDelta", "Adam", "SAG", "AdamW")
}
# for each field, Caffe's spelling by MyCaffe's
_SOLVER_FIELD_VALUES = {
    "type": _SOLVER_TYPES,
    "ap_version": {name.lower(): name for name in ("Integral", "MaxIntegral")},
}


def upgrade_net(net: NetParameter) -> list[str]:
    """Upgrade `net` to the current form, in place.

    Returns:
        Warnings about old forms, and about fields that were dropped because the current form has no such field.

    Raises:
        SchemaError: if the net mixes old and new layers, has V0 layers of an unknown type, or has fewer shapes than
            inputs.
    """
    if net.layer and net.layers:
        raise SchemaError(
            f"the net has both 'layer' (current) and 'layers' (old); write all as layer {{ type: \"...\" }} "
            f"(first 'layers' entry: '{net.layers[0].name or net.layers[0].layer.name}')"
        )
    warnings = ["'layers' is old; write layer { type: \"ReLU\" ... }"] if net.layers else []
    for upgrade in _UPGRADES:
        warnings += upgrade(net) or []
    return warnings


def is_about_old_form(warning: str) -> bool:
    """Return whether a warning of `upgrade_net` only says that a form is old, although the net is read completely."""
    return " old; " in warning


def upgrade_solver(solver: SolverParameter) -> list[str]:
    """Upgrade `solver` and the nets inside it to the current form, in place.

    Returns:
        Warnings; see `upgrade_net`.

    Raises:
        SchemaError: if both `type` and `solver_type` are set, or a net cannot be upgraded; see `upgrade_net`.
    """
    warnings = []
    if solver.HasField("solver_type"):
        if solver.HasField("type"):
            raise SchemaError(f"the solver has both type ('{solver.type}') and the old solver_type; remove the latter")
        solver.type = _SOLVER_TYPES[SolverParameter.SolverType.Name(solver.solver_type)]
        solver.ClearField("solver_type")
        warnings.append(f'solver_type is old; write type: "{solver.type}"')
    for field, names in _SOLVER_FIELD_VALUES.items():
        setting = getattr(solver, field)
        if names.get(setting, setting) != setting:
            setattr(solver, field, names[setting])
    nets = [getattr(solver, name) for name in ("net_param", "train_net_param") if solver.HasField(name)]
    for net in [*nets, *solver.test_net_param]:
        warnings += upgrade_net(net)
    return warnings


# the names of layer types in V0, and in lower case in V1
_V0_NAMES = {"conv": "convolution", "images": "image_data", "innerproduct": "inner_product", "pool": "pooling"} | {
    name: name
    for name in (
        *("accuracy", "bnll", "concat", "data", "dropout", "euclidean_loss", "flatten", "hdf5_data", "hdf5_output"),
        *("im2col", "infogain_loss", "lrn", "multinomial_logistic_loss", "relu", "sigmoid", "softmax", "softmax_loss"),
        *("split", "tanh", "window_data"),
    )
}
# V0's fields that have other names in V1; all types share V0's fields, and a type has those that its V1 message has
_V0_RENAMED_FIELDS = {"biasterm": "bias_term", "kernelsize": "kernel_size", "batchsize": "batch_size"} | {
    f"det_{name}": name for name in ("fg_threshold", "bg_threshold", "fg_fraction", "context_pad", "crop_mode")
}
_V0_TRANSFORM_FIELDS = {"scale": "scale", "meanfile": "mean_file", "cropsize": "crop_size", "mirror": "mirror"}


def upgrade_v0(net: NetParameter) -> list[str]:
    """Convert V0 layers to V1 layers. Padding layers become the `pad` setting of the layers after them."""
    if not any(layer.HasField("layer") for layer in net.layers):
        return []
    warnings: list[str] = []
    new = NetParameter(input=net.input, input_dim=net.input_dim)
    for name in ("name", "force_backward"):  # Caffe drops the net's other fields, which V0 did not have
        if net.HasField(name):
            setattr(new, name, getattr(net, name))
    problems: list[Problem] = []
    for layer in _fold_padding(net):
        upgrade = _upgrade_v0_layer if layer.HasField("layer") else _upgrade_interspersed_v1
        try:
            warnings += upgrade(layer, new.layers.add(bottom=layer.bottom, top=layer.top))
        except SchemaError as error:
            problems += error.problems
    raise_if_any(SchemaError, problems)
    net.CopyFrom(new)
    return warnings


def _fold_padding(net: NetParameter) -> list[V1LayerParameter]:
    """Return the layers without padding layers. Convolutions and poolings that read a padding layer get its `pad`."""
    remaining_layers: list[V1LayerParameter] = []
    producers: dict[str, V1LayerParameter] = {}
    for layer in net.layers:
        for i, bottom in enumerate(layer.bottom):
            padding_layer = producers.get(bottom)
            if padding_layer is None or padding_layer.layer.type != "padding":
                continue
            problem = ""
            if layer.layer.type not in ("conv", "pool"):
                problem = "only conv and pool can follow a padding layer"
            elif len(layer.bottom) != 1 or len(padding_layer.bottom) != 1 or len(padding_layer.top) != 1:
                problem = "a padding layer and the layer after it must have one bottom"
            if problem:
                raise SchemaError(Problem(problem, layer=layer.layer.name, layer_type=layer.layer.type))
            layer.layer.pad = padding_layer.layer.pad
            layer.bottom[i] = padding_layer.bottom[0]
        producers.update(dict.fromkeys(layer.top, layer))
        if layer.layer.type != "padding":
            remaining_layers.append(layer)
    return remaining_layers


def _upgrade_v0_layer(old: V1LayerParameter, new: V1LayerParameter) -> list[str]:
    """Fill the V1 layer `new` from a V0 layer; return a warning for every field that the layer's type does not have."""
    v0_layer, warnings = old.layer, []
    # other layers that can be shuffled in V1 could not be in V0
    renamed_fields = _V0_RENAMED_FIELDS | ({"shuffle_images": "shuffle"} if v0_layer.type == "images" else {})
    settings = getattr(new, f"{_V0_NAMES.get(v0_layer.type)}_param", None)
    for field, value in v0_layer.ListFields():
        new_name = renamed_fields.get(field.name, field.name)
        if field.name == "name":
            new.name = value
        elif field.name == "type":
            new.type = _v1_type(v0_layer)
        elif field.name in ("blobs", "blobs_lr", "weight_decay"):
            getattr(new, field.name).extend(value)
        elif field.name in _V0_TRANSFORM_FIELDS:
            setattr(new.transform_param, _V0_TRANSFORM_FIELDS[field.name], value)
        elif field.name == "hdf5_output_param" and v0_layer.type == "hdf5_output":
            new.hdf5_output_param.CopyFrom(value)
        elif settings is not None and new_name in settings.DESCRIPTOR.fields_by_name:
            _set_field(settings, new_name, value)
        else:
            warnings.append(
                f"layer '{v0_layer.name}': {field.name} has no effect on type '{v0_layer.type}' and is dropped"
            )
    return warnings


def _upgrade_interspersed_v1(old: V1LayerParameter, new: V1LayerParameter) -> list[str]:
    """Return a warning if settings of a V1 layer among V0 layers are dropped. Caffe keeps its bottoms and tops."""
    dropped_fields = [field.name for field, _ in old.ListFields() if field.name not in ("bottom", "top")]
    message = (
        f"layer '{old.name}' is a V1 layer in a file with V0 layers, where Caffe reads only bottom and top: "
        f"{', '.join(dropped_fields)} {'is' if len(dropped_fields) == 1 else 'are'} dropped; write all layers in the "
        "same form"
    )
    return [message] if dropped_fields else []


def _v1_type(v0_layer: V0LayerParameter) -> V1LayerParameter.LayerType:
    if v0_layer.type not in _V0_NAMES:
        hint = did_you_mean(v0_layer.type, _V0_NAMES)
        raise SchemaError(Problem(f"there is no V0 layer type '{v0_layer.type}'{hint}", layer=v0_layer.name))
    return getattr(V1LayerParameter, _V0_NAMES[v0_layer.type].upper())


_UPGRADES: tuple[Callable[[NetParameter], list[str] | None], ...] = (
    *(upgrade_v0, upgrade_transforms, upgrade_v1, upgrade_inputs, upgrade_batch_norms),
    *(upgrade_softmax, upgrade_memory_data, upgrade_stats_batch_size, drop_inactive_settings, drop_bias_multipliers),
    *(expand_layers, rename_fork_settings),
)
