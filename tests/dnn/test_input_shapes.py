"""Inputs whose shapes a prototxt does not state come from setInput, as in OpenCV 4.11; and other small differences."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from caffejax import Net, dnn
from caffejax.base.errors import CaffejaxError
from caffejax.core.schema import caffe_pb2 as pb
from caffejax.core.schema import read_net

LAYER = 'layer { name: "data" type: "Input" top: "data" %s }'
HEADS = {
    "an input field": 'input: "data"',
    "an Input layer": LAYER % "",
    "an empty shape": LAYER % "input_param { shape { } }",
    "an empty input_shape": 'input: "data" input_shape { }',
    "-1": 'input: "data" input_shape { dim: 1 dim: 3 dim: 8 dim: -1 }',
    "-1 everywhere": LAYER % "input_param { shape { dim: -1 dim: -1 dim: -1 dim: -1 } }",
    "0": LAYER % "input_param { shape { dim: 1 dim: 3 dim: 0 dim: 0 } }",
    "input_dim of 0": 'input: "data" input_dim: 0 input_dim: 3 input_dim: 0 input_dim: -1',
}
POOLING = 'layer { name: "p" type: "Pooling" bottom: "data" top: "p" pooling_param { kernel_size: 2 stride: 2 } }'


def pool(x: np.ndarray) -> np.ndarray:
    n, c, h, w = x.shape
    return x.reshape(n, c, h // 2, 2, w // 2, 2).max((3, 5))


def make_images(*shapes: tuple[int, ...]) -> Iterator[np.ndarray]:
    rng = np.random.default_rng(0)
    for shape in shapes:
        yield rng.normal(size=shape).astype(np.float32)


@pytest.mark.parametrize("head", HEADS)
def test_shapes_come_from_set_input(head: str) -> None:
    net = dnn.readNetFromCaffe(f"{HEADS[head]} {POOLING}".encode())
    assert not net.empty()
    assert net.getLayerNames() == net.getUnconnectedOutLayersNames() == ("p",)
    with pytest.raises(CaffejaxError, match="setInput"):
        net.forward()
    for x in make_images((2, 3, 8, 8), (1, 3, 6, 4), (2, 3, 8, 8), (2, 5, 8, 6)):  # OpenCV 4.11 takes these, too
        net.setInput(x)
        np.testing.assert_array_equal(net.forward(), pool(x))
    _, bottoms, tops = net.getLayersShapes((3, 3, 4, 6))
    assert (bottoms[1][0].tolist(), tops[1][0].tolist()) == ([3, 3, 4, 6], [3, 3, 2, 3])
    net.setInputShape("data", (1, 3, 10, 8))
    assert "1 x 3 x 5 x 4" in net.dump()


WEIGHTED = """%s layer { name: "c" type: "Convolution" bottom: "data" top: "c"
  convolution_param { num_output: 2 kernel_size: 3 pad: 1 } }
layer { name: "fc" type: "InnerProduct" bottom: "c" top: "fc" inner_product_param { num_output: 4 } }"""


def make_model(side: int, channels: int = 3) -> tuple[bytes, dict[str, np.ndarray]]:
    rng = np.random.default_rng(side)
    arrays = {"c": rng.normal(size=(2, channels, 3, 3)), "fc": rng.normal(size=(4, 2 * side * side))}
    message = pb.NetParameter()
    for name, weight in arrays.items():
        layer = message.layer.add(name=name)
        for array in (weight, np.arange(len(weight))):
            layer.blobs.add(data=array.ravel(), shape=pb.BlobShape(dim=array.shape))
    return message.SerializeToString(), arrays


@pytest.mark.parametrize(("side", "channels"), [(8, 3), (28, 1), (7, 3), (5, 4)])
@pytest.mark.parametrize("head", ["an Input layer", "-1", "0"])
def test_shapes_fit_the_weights(head: str, side: int, channels: int) -> None:
    """7 and 5 are no sizes to guess, so that the layers are known only once the input is."""
    text = (WEIGHTED % HEADS[head]).replace("dim: 3", f"dim: {channels}").replace("dim: 8", f"dim: {side}").encode()
    model, _ = make_model(side, channels)
    net, stated = (
        dnn.readNetFromCaffe(source, model)
        for source in (
            text,
            (
                WEIGHTED % f'input: "data" input_dim: 1 input_dim: {channels} input_dim: {side} input_dim: {side}'
            ).encode(),
        )
    )
    (x,) = make_images((2, channels, side, side))
    assert not net.empty()
    if side > 7:
        assert net.getLayerNames() == ("c", "fc")
    else:
        with pytest.raises(CaffejaxError, match="does not state the shapes of these inputs: data; call setInput first"):
            net.getLayerNames()
    for tested_net in (net, stated):
        tested_net.setInput(x)
    np.testing.assert_array_equal(net.forward(), stated.forward())
    assert net.getLayerNames() == ("c", "fc")
    net.setParam("fc", 1, [10, 20, 30, 40])  # survives another shape
    before = net.forward()
    net.setInput(x[:1])
    np.testing.assert_allclose(net.forward(), before[:1], rtol=0, atol=1e-6 * np.abs(before).max())
    np.testing.assert_allclose(before - stated.forward(), np.tile([10, 19, 28, 37], (2, 1)), atol=1e-3)
    net.setInput(np.zeros((1, channels, 4, 4)))
    with pytest.raises(CaffejaxError, match="'fc'"):
        net.forward()
    net.setInput(x)
    np.testing.assert_array_equal(net.forward(), before)


def test_the_number_of_axes_comes_from_set_input() -> None:
    model, arrays = make_model(2, 3)
    text = """input: "data" layer { name: "fc" type: "InnerProduct" bottom: "data" top: "t"
      inner_product_param { num_output: 4 } }"""
    net = dnn.readNetFromCaffe(text.encode(), model)
    for shape in ((5, 8), (1, 8), (2, 2, 2, 2), (3, 8, 1, 1)):
        (x,) = make_images(shape)
        net.setInput(x)
        expected = x.reshape(len(x), -1) @ arrays["fc"].T + np.arange(4)
        np.testing.assert_allclose(net.forward(), expected, rtol=1e-4, atol=1e-4)


def test_several_inputs_without_shapes() -> None:
    """Image and im_info, as of Faster R-CNN; both in each order."""
    text = b"""input: "data" input: "im_info"
    layer { name: "p" type: "Power" bottom: "im_info" top: "p" power_param { scale: 2 } }
    layer { name: "r" type: "ReLU" bottom: "data" top: "r" }"""
    for order in (("data", "im_info"), ("im_info", "data")):
        net = dnn.readNetFromCaffe(text)
        inputs = {"data": np.ones((1, 3, 6, 4)), "im_info": np.full((1, 3), 7)}
        for name in order:
            net.setInput(inputs[name], name)
        results = net.forward(["p", "r"])
        assert [r.shape for r in results] == [(1, 3), (1, 3, 6, 4)]
        np.testing.assert_array_equal(results[0], 14)


def test_models_need_a_size_if_the_prototxt_states_none() -> None:
    model = dnn.SegmentationModel(dnn.readNetFromCaffe(f"{HEADS['0']} {POOLING}".encode()))
    image = np.zeros((5, 6, 3), np.uint8)
    with pytest.raises(CaffejaxError, match="setInputSize"):
        model.segment(image)
    assert model.setInputSize((8, 6)).segment(image).shape == (3, 4)


@pytest.mark.parametrize(
    "head", [name for name in HEADS if name not in ("0", "an empty shape", "an empty input_shape")]
)
def test_messages_outside_of_dnn_say_what_to_write(head: str) -> None:
    """Caffe refuses such nets, too."""
    with pytest.raises(CaffejaxError, match=r"dim: .* arrays of other sizes may be passed when it runs"):
        Net(f"{HEADS[head]} {POOLING}\n")


def test_an_input_that_a_layer_produces_needs_no_shape() -> None:
    """Caffe drops input fields if none has a shape."""
    data = (
        'layer { name: "d" type: "DummyData" top: "data" dummy_data_param { shape { dim: 1 dim: 3 dim: 8 dim: 8 } } }'
    )
    text = f'input: "data" {data} {POOLING}\n'
    assert [layer.type for layer in read_net(text).layer] == ["DummyData", "Pooling"]
    assert dnn.readNetFromCaffe(text.encode()).forward().shape == (1, 3, 4, 4)


TWO = """input: "data" input: "f"
layer { name: "s" type: "Scale" bottom: "data" bottom: "f" top: "s" scale_param { axis: %d %s } }"""


@pytest.mark.parametrize(
    ("axis", "shape", "factor_shape"),
    [(0, (2, 3, 4, 5), (2, 3, 1, 1)), (0, (1, 3, 4, 5), (1, 3, 1, 1)), (1, (2, 3, 4, 5), (1, 3, 1, 1))],
)
def test_factors_of_channels_are_broadcast(axis: int, shape: tuple[int, ...], factor_shape: tuple[int, ...]) -> None:
    """OpenCV 4.11 gives these numbers."""
    x, factor = make_images(shape, factor_shape)
    net = dnn.readNetFromCaffe((TWO % (axis, "")).encode())
    for reps in (1, 2):  # another batch
        inputs = {"data": np.concatenate([x] * reps), "f": np.concatenate([factor] * (reps if axis == 0 else 1))}
        for name, array in inputs.items():
            net.setInput(array, name)
        np.testing.assert_allclose(net.forward(), inputs["data"] * inputs["f"], rtol=1e-6)
    text = (TWO % (axis, "")).replace(
        'input: "f"', 'input: "f" input_shape { dim: 2 dim: 3 dim: 4 dim: 5 } input_shape { %s }'
    )
    dims = " ".join(f"dim: {n}" for n in factor_shape)
    advice = r"Flatten the second bottom to \(2, 3\)" if factor_shape[0] == 2 else "dimension mismatch"
    with pytest.raises(CaffejaxError, match=advice):
        Net(f"{text % dims}\n")


def test_default_arguments_of_forward_are_opencvs() -> None:
    slices = 'layer { name: "s" type: "Slice" bottom: "data" top: "a" top: "b" slice_param { axis: 1 slice_point: 1 } }'
    net = dnn.readNetFromCaffe(f'input: "data" {slices}'.encode())
    (x,) = make_images((1, 3, 2, 2))
    net.setInput(x)
    for result in (net.forward(), net.forward(None), net.forward(""), net.forward("s"), *net.forward(["s"])):
        np.testing.assert_array_equal(result, x[:, :1])
    for results in (net.forward([]), net.forward(()), net.forwardAndRetrieve(["s"])[0]):
        assert isinstance(results, tuple)
        for result, expected in zip(results, (x[:, :1], x[:, 1:]), strict=True):
            np.testing.assert_array_equal(result, expected)


def test_unknown_fields_are_ignored_with_a_warning(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    text = f"""{LAYER % "input_param {{ shape {{ dim: 1 dim: 3 dim: 4 dim: 4 }} }}"}
    layer {{ name: "bn" type: "BatchNorm" bottom: "data" top: "bn" batch_normalize_bbox_param {{ }}
      batch_norm_param {{ q: 3 eps: 1 }} }}
    some_field: "x" other {{ a: [1, 2] b < c: -1 > }}
    {POOLING.replace("data", "bn")}""".replace("{{", "{").replace("}}", "}")
    (tmp_path / "net.prototxt").write_text(text)
    for source in (str(tmp_path / "net.prototxt"), text.encode()):
        caplog.clear()
        net = dnn.readNetFromCaffe(source)
        assert net.getLayerNames() == ("bn", "p")
        for name in ("batch_normalize_bbox_param", "'q'", "some_field", "other"):
            assert name in caplog.text
    with pytest.raises(CaffejaxError, match="batch_normalize_bbox_param"):
        Net(text + "\n")
    for mistake in (
        POOLING.replace("kernel_size: 2", "kernel_size: x"),
        POOLING[:-1],
        POOLING.replace("Pooling", "Pool"),
    ):
        with pytest.raises(CaffejaxError):
            dnn.readNetFromCaffe(f"{HEADS['0']} {mistake}".encode())


def test_weights_of_renamed_layers_are_not_asked_for_again() -> None:
    model, _ = make_model(8)
    text = (WEIGHTED % HEADS["0"]).replace('"fc"', '"fc_new"').replace("dim: 0", "dim: 8")
    net: Any = dnn.readNetFromCaffe(text.encode(), model)
    net.setInput(np.zeros((1, 3, 8, 8)))
    with pytest.raises(
        CaffejaxError, match=r"'fc_new'; bufferModel has weights for 'c', 'fc', and layers match by name"
    ):
        net.forward()
    net = dnn.readNetFromCaffe(text.encode())
    net.setInput(np.zeros((1, 3, 8, 8)))
    with pytest.raises(CaffejaxError, match=r"read the net with its .caffemodel"):
        net.forward()
