"""Is a setting an error, or without effect, where its meaning says so, and does it name the values that are accepted?

Types that read data are left out: their settings are checked with their data.
"""

import re
from typing import Any

import pytest
from case import Case
from cases import FURTHER, LAYERS

from caffejax import CaffejaxError
from caffejax.graph import build_graph
from caffejax.layers import type_of
from caffejax.layers.descriptions import params_of, settings_of
from caffejax.schema import read_net
from caffejax.schema.caffe_pb2 import LayerParameter, NetParameter, NetState

_FIRST = list({type_of(read_net(case.text(2)).layer[-1]): case for case in reversed((*LAYERS, *FURTHER))}.values())


def change(message: Any, name: str) -> None:
    """Sets a field to another value than its default and than the case's."""
    field = message.DESCRIPTOR.fields_by_name[name]
    old = getattr(message, name) if field.has_presence else None
    if field.message_type is not None:
        getattr(message, name).SetInParent()
    elif field.enum_type is not None:
        setattr(message, name, next(v.number for v in field.enum_type.values if v.number != old))
    else:
        new = {field.CPPTYPE_BOOL: not old, field.CPPTYPE_STRING: "other"}.get(field.cpp_type, 7 if old != 7 else 3)
        getattr(message, name).append(new) if field.is_repeated else setattr(message, name, new)


def shapes(net: NetParameter, phase: Any) -> dict[str, tuple[int, ...]]:
    """Builds a net; returns the shapes of its blobs."""
    return {name: tuple(blob.shape) for name, blob in build_graph(net, NetState(phase=phase)).blobs.items()}


@pytest.mark.parametrize("case", _FIRST, ids=lambda case: case.name)
def test_settings_do_what_their_meaning_says(case: Case) -> None:
    net = read_net(case.text(2))
    expected = None
    for param in params_of(type_of(net.layer[-1])):
        for setting in settings_of(type_of(net.layer[-1]), param):
            is_error = "an error if" in setting.meaning
            if "." in setting.name or not (is_error or setting.meaning.startswith("no effect")):
                continue
            changed = NetParameter()
            changed.CopyFrom(net)
            layer: LayerParameter = changed.layer[-1]
            change(getattr(layer, param), setting.name)
            if is_error:
                with pytest.raises(CaffejaxError):
                    pytest.fail(f"{param}.{setting.name} is accepted: {shapes(changed, case.phase)}")
            else:
                expected = expected or shapes(net, case.phase)
                assert shapes(changed, case.phase) == expected, setting.name


@pytest.mark.parametrize("case", _FIRST, ids=lambda case: case.name)
def test_accepted_values_are_named(case: Case) -> None:
    net = read_net(case.text(2))
    params = params_of(type_of(net.layer[-1]))
    for param in (p for p in params if net.layer[-1].HasField(p) or len(params) == 1):
        fields = getattr(net.layer[-1], param).DESCRIPTOR.fields_by_name
        for setting in settings_of(type_of(net.layer[-1]), param):
            field = fields.get(setting.name)
            if field is None or field.enum_type is None or field.is_repeated or setting.meaning.startswith("no effect"):
                continue
            for value in field.enum_type.values:
                if value.number != field.default_value and not re.search(rf"\b{value.name}\b", setting.meaning):
                    changed = NetParameter()
                    changed.CopyFrom(net)
                    setattr(getattr(changed.layer[-1], param), setting.name, value.number)
                    with pytest.raises(CaffejaxError):
                        pytest.fail(f"{setting.name}: {value.name} is accepted: {shapes(changed, case.phase)}")
