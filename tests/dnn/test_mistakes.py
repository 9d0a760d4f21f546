"""Every public call of `caffejax.dnn` with typical mistakes: a result or a CaffejaxError, never Python's errors."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from test_dnn import load_net

from caffejax import dnn
from caffejax.base.errors import CaffejaxError

MISTAKES: dict[str, Any] = {
    "None": None,
    "nothing": "",
    "a name": "absent",
    "a number": 3,
    "a negative number": -1,
    "a large number": 10**30,
    "a float": 0.5,
    "NaN": float("nan"),
    "an empty list": [],
    "a list": [1, 2],
    "a list of lists": [[1, 2], [3]],
    "shapes": [[1, 3, 8, 12], [1, "a"]],
    "negative sizes": (1, 3, -8, 8),
    "a long shape": (1,) * 40,
    "a huge shape": (2**40,) * 4,
    "floats": (1.0, 3.0, 8.5, 8.0),
    "strings": ["a", 1],
    "bytes": b"x",
    "a dict": {"a": 1},
    "an object": object(),
    "a class": int,
    "a scalar array": np.array(1),
    "an empty array": np.zeros((0, 3)),
    "an array of strings": np.array(["a", "b"]),
    "an array of objects": np.array([None, 1], object),
    "complex numbers": np.ones((1, 3, 8, 12), complex),
    "a picture": np.zeros((8, 12, 3), np.uint8),
    "a picture of float64": np.zeros((8, 12, 3)),
    "a picture of int64": np.zeros((8, 12, 3), np.int64),
    "a picture of 7 channels": np.zeros((8, 12, 7), np.uint8),
    "a batch": np.zeros((1, 3, 8, 12)),
    "another batch": np.zeros((2, 5, 3, 3)),
}
NO_INPUTS = b"""layer { name: "data" type: "DummyData" top: "data"
  dummy_data_param { shape { dim: 1 dim: 3 dim: 8 dim: 8 } } }
layer { name: "s" type: "Softmax" bottom: "data" top: "s" }"""
ONLY_INPUTS = b'layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 1 dim: 3 dim: 8 dim: 8 } } }'
UNKNOWN = b"""input: "data"
layer { name: "fc" type: "InnerProduct" bottom: "data" top: "fc" inner_product_param { num_output: 2 } }"""


def make_objects() -> dict[str, Any]:
    net = load_net("maps")
    net.setInput(np.ones((1, 3, 8, 12)))
    return {
        "net": net,
        "empty net": dnn.Net(),
        "net without inputs": dnn.readNetFromCaffe(NO_INPUTS),
        "net of inputs": dnn.readNetFromCaffe(ONLY_INPUTS),
        "net of unknown shape": dnn.readNetFromCaffe(UNKNOWN),
        "layer": net.getLayer("maps"),
        "layer 0": net.getLayer(0),
        "Model": dnn.Model(load_net("maps")),
        "ClassificationModel": dnn.ClassificationModel(load_net("classes")),
        "SegmentationModel": dnn.SegmentationModel(load_net("maps")),
        "KeypointsModel": dnn.KeypointsModel(load_net("maps")),
        "DetectionModel": dnn.DetectionModel(load_net("boxes")),
    }


OBJECTS = tuple(make_objects())
FUNCTIONS = ("readNetFromCaffe", "readNet", "registerLayer", "unregisterLayer", "Net", "Model", "DetectionModel")


def list_calls(owner: Any, names: Iterator[str]) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Yield each call with too few and too many arguments, and with each mistake as each argument."""
    for name in names:
        method = getattr(owner, name)
        parameters = [*inspect.signature(method).parameters.values()]
        yield f"{name}()", method
        yield f"{name}(1, 2, ..., 9)", lambda method=method: method(*range(9))
        yield f"{name}(absent=1)", lambda method=method: method(absent=1)
        for label, value in MISTAKES.items():
            for position, parameter in enumerate(parameters):
                call = f"{name}({parameter.name} = {label})"
                if parameter.kind == parameter.KEYWORD_ONLY:
                    yield call, lambda m=method, p=parameter.name, v=value: m(**{p: v})
                else:
                    yield call, lambda m=method, n=position, v=value: m(*[VALID] * n, v)


VALID = np.ones((1, 3, 8, 12), np.float32)


def find_raw_errors(calls: Iterator[tuple[str, Callable[[], Any]]]) -> list[str]:
    errors = []
    for name, call in calls:
        try:
            call()
        except CaffejaxError as error:
            if not str(error).strip():
                errors.append(f"{name}: no message")
        except Exception as error:
            errors.append(f"{name}: {type(error).__name__}: {error}")
    return errors


@pytest.mark.parametrize("name", OBJECTS)
def test_methods_raise_errors_of_caffejax(name: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # `dumpToFile` may write
    target = make_objects()[name]
    methods = [m for m in dir(target) if not m.startswith("_") and inspect.ismethod(getattr(target, m))]
    assert len(methods) > 0
    errors = find_raw_errors(list_calls(target, iter(methods)))
    assert not errors, "\n".join(errors)


def test_functions_raise_errors_of_caffejax(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    errors = find_raw_errors(list_calls(dnn, iter(FUNCTIONS)))
    assert not errors, "\n".join(errors)


def test_assigned_blobs_raise_errors_of_caffejax() -> None:
    layers = [load_net("maps").getLayer(name) for name in ("maps", "heights", 0)]
    calls = (
        (f"blobs = {label}", lambda layer=layer, value=value: setattr(layer, "blobs", value))
        for layer in layers
        for label, value in MISTAKES.items()
    )
    errors = find_raw_errors(calls)
    assert not errors, "\n".join(errors)


def test_a_net_without_inputs_says_how_it_begins() -> None:
    net = dnn.readNetFromCaffe(NO_INPUTS)
    assert net.forward().shape == (1, 3, 8, 8)
    for name in ("", "data"):
        with pytest.raises(
            CaffejaxError, match=r"no inputs to set: it begins with layer 'data' \(DummyData\); .*Input"
        ):
            net.setInput(np.zeros((1, 3, 8, 8), np.float32), name)
    with pytest.raises(CaffejaxError, match="only inputs"):
        dnn.readNetFromCaffe(ONLY_INPUTS).forward()


def test_none_is_a_default_of_set_input() -> None:
    """As in OpenCV; a mean of None was NaN."""
    net, expected = load_net("maps"), load_net("maps")
    expected.setInput(VALID)
    net.setInput(VALID, None, None, None)
    np.testing.assert_array_equal(net.forward(), expected.forward())
