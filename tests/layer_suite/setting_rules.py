"""Settings of forks' types are validated and read as their descriptions say.

A setting is an error or has no effect where its description says so, messages name the accepted values, and layers
read every other setting. Types that read data are left out: their settings are tested with their data.
"""

import re
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import pytest

from caffejax import CaffejaxError
from caffejax.core.graph import build_graph
from caffejax.core.layers.types import LayerType
from caffejax.core.schema import read_net
from caffejax.core.schema.caffe_pb2 import LayerParameter, NetParameter, NetState
from caffejax.tools.layer_pages.descriptions import COMMON_PARAMS, list_param_fields, list_settings

from .case import Case
from .field_reads import list_reads_of_cases


def set_different_value(message: Any, name: str) -> None:
    """Set a field to a value other than its default and the case's value."""
    field = message.DESCRIPTOR.fields_by_name[name]
    old_value = getattr(message, name) if field.has_presence else None
    if field.message_type is not None:
        getattr(message, name).add() if field.is_repeated else getattr(message, name).SetInParent()
    elif field.enum_type is not None:
        setattr(message, name, next(v.number for v in field.enum_type.values if v.number != old_value))
    else:
        new_value = {field.CPPTYPE_BOOL: not old_value, field.CPPTYPE_STRING: "other"}.get(
            field.cpp_type, 7 if old_value != 7 else 3
        )
        getattr(message, name).append(new_value) if field.is_repeated else setattr(message, name, new_value)


def infer_shapes(net: NetParameter, phase: Any) -> dict[str, tuple[int, ...]]:
    """Build a net and return the shapes of its blobs."""
    return {name: tuple(blob.shape) for name, blob in build_graph(net, NetState(phase=phase)).blobs.items()}


def settings_are_rejected_or_ignored_as_documented(cases: list[Case]) -> None:
    case = cases[0]
    net = read_net(case.prototxt(2))
    expected = None
    for param in list_param_fields(case.layer_type):
        for setting in list_settings(case.layer_type, param):
            is_error = "an error if" in setting.meaning
            if "." in setting.name or not (is_error or setting.meaning.startswith("no effect")):
                continue
            changed_net = NetParameter()
            changed_net.CopyFrom(net)
            layer: LayerParameter = changed_net.layer[-1]
            set_different_value(getattr(layer, param), setting.name)
            if is_error:
                with pytest.raises(CaffejaxError):
                    pytest.fail(f"{param}.{setting.name} is accepted: {infer_shapes(changed_net, case.phase)}")
            else:
                expected = expected or infer_shapes(net, case.phase)
                assert infer_shapes(changed_net, case.phase) == expected, setting.name


def documentation_names_accepted_enum_values(cases: list[Case]) -> None:
    case = cases[0]
    net = read_net(case.prototxt(2))
    params = list_param_fields(case.layer_type)
    for param in (p for p in params if net.layer[-1].HasField(p) or len(params) == 1):
        fields = getattr(net.layer[-1], param).DESCRIPTOR.fields_by_name
        for setting in list_settings(case.layer_type, param):
            field = fields.get(setting.name)
            if field is None or field.enum_type is None or field.is_repeated or setting.meaning.startswith("no effect"):
                continue
            for value in field.enum_type.values:
                if value.number != field.default_value and not re.search(rf"\b{value.name}\b", setting.meaning):
                    changed_net = NetParameter()
                    changed_net.CopyFrom(net)
                    setattr(getattr(changed_net.layer[-1], param), setting.name, value.number)
                    with pytest.raises(CaffejaxError):
                        pytest.fail(
                            f"{setting.name}: {value.name} is accepted: {infer_shapes(changed_net, case.phase)}"
                        )


# settings that only some layers of a type read, none of which is among the cases
_SOMETIMES_READ = {
    "bbox_reg_param.cls_aware": "by layers whose boxes have classes",
    "bn_param.icnet": "to choose the layer",
    "channel_scale_param.max_global_scale": "with global_scale",
    "channel_scale_param.min_global_scale": "with global_scale",
    "convolution3d_param.bias_term": "as in C3D, Deconvolution3D reads it from convolution_param",
    "decode_param.k": "with target KNN",
    "detection_output_param.input_height": "without normalized",
    "detection_output_param.input_width": "without normalized",
    "infogain_loss_param.source": "with two bottoms",
    "inner_product_param.bias_filler": "without a bottom for the bias",
    "inner_product_param.num_output": "without a bottom for the weight",
    "inner_product_param.weight_filler": "without a bottom for the weight",
    "knn_param.k": "in TEST",
    "label_specific_rescale_param.positive_weight": "in TRAIN",
    "label_specific_rescale_param.rescale_test": "in TEST",
    "prior_box_param.flip": "with aspect_ratio",
    "proposal_target_param.img_height": "without ROIs",
    "proposal_target_param.img_width": "without ROIs",
}


# settings of a message that types share, which a type does not read, as its documentation says
_NOT_READ = {
    "Im2col": [
        f"convolution_param.{name}" for name in ("num_output", "bias_term", "group", "weight_filler", "bias_filler")
    ]
}


def list_unread_settings(layer_type: LayerType, reads: set[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return the settings of a type, with their LayerParameter fields, that have an effect and are not in `reads`."""
    names = []
    for param in list_param_fields(layer_type):
        for setting in list_settings(layer_type, param):
            message = LayerParameter.DESCRIPTOR.fields_by_name[param].message_type
            *outer_fields, name = setting.name.split(".")
            for field in outer_fields:
                message = message.fields_by_name[field].message_type
            has_one_value = (
                message.fields_by_name[name].enum_type and len(message.fields_by_name[name].enum_type.values) == 1
            )
            if not ((message.full_name, name) in reads or setting.meaning.startswith("no effect") or has_one_value):
                names.append((param, setting.name))
    return names


def types_declare_the_messages_of_their_settings(cases: list[Case]) -> None:
    fields = {f.name for case in cases for f, _ in read_net(case.prototxt(2)).layer[-1].ListFields()}
    messages = {name for name in fields if name.endswith("_param")}
    assert messages <= {*list_param_fields(cases[0].layer_type), *COMMON_PARAMS}


def is_rejected(case: Case, param: str, setting: str) -> bool:
    """Return whether a case raises an error after a setting was changed."""
    net = read_net(case.prototxt(2))
    message, (*outer_fields, name) = getattr(net.layer[-1], param), setting.split(".")
    for field in outer_fields:
        message = getattr(message, field)
    set_different_value(message, name)
    try:
        infer_shapes(net, case.phase)
    except CaffejaxError:
        return True
    return False


def no_setting_is_ignored_silently(cases: list[Case], recording_process: ProcessPoolExecutor) -> None:
    """Each setting is read, is rejected, or is described as having no effect."""
    reads = recording_process.submit(list_reads_of_cases, cases).result()
    excepted = {*_SOMETIMES_READ, *_NOT_READ.get(cases[0].layer_type.name, ())}
    ignored = [
        f"{param}.{name}"
        for param, name in list_unread_settings(cases[0].layer_type, reads)
        if f"{param}.{name}" not in excepted and not all(is_rejected(case, param, name) for case in cases)
    ]
    assert not ignored
