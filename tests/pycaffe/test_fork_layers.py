"""Layers of forks through Caffe's interface: diffs that backward overwrites, and weights that forward rewrites."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import caffejax.pycaffe as caffe
from golden_cases import ACCEPTED_CASES, FORKS, format_case_id, is_fork_case

CASES = {format_case_id(case): case for case in ACCEPTED_CASES if is_fork_case(case)}
BN = 'layer {{ name: "layer" type: "BN" bottom: "x" top: "x" bn_param {{ bn_mode: {} }} }}'


def make_net(tmp_path: Path, text: str, shape: tuple[int, ...]) -> caffe.Net:
    dims = " ".join(f"dim: {n}" for n in shape)
    input_text = (
        f'force_backward: true layer {{ name: "x" type: "Input" top: "x" input_param {{ shape {{ {dims} }} }} }}\n'
    )
    (tmp_path / "net.prototxt").write_text(input_text + text)
    return caffe.Net(str(tmp_path / "net.prototxt"), caffe.TRAIN)


@pytest.mark.parametrize(
    "name",
    ["BN-segnet_overwrites", "Convolution3D-stride", "InnerDistance-l2_normalized", "MarginInnerProduct-quadruple"],
)
def test_recorded_params_and_diffs(name: str) -> None:
    case = CASES[name]
    result = dict(np.load(case["path"].with_suffix(".npz")))
    net = caffe.Net(str(case["path"].with_suffix(".prototxt")), getattr(caffe, case["phase"]))
    blobs = net.params["layer"]
    numbers = range(len(blobs))
    for i in numbers:
        blobs[i].data[...] = result[f"param/{i}"]
    for top in set(net.params) - {"layer"}:  # a Parameter layer
        net.params[top][0].data[...] = result[f"bottom/{top}"]
    for _ in range(int(result.get("forwards", 1))):
        net.forward(**{top: result[f"bottom/{top}"] for top in net.inputs})
    for i in numbers:
        blobs[i].diff[...] = result.get(f"param_diff_before/{i}", 0)
    for top in net.top_names["layer"]:
        net.blobs[top].diff[...] = result.get(f"top_diff/{top}", 0)
    net.backward()
    for i in numbers:
        np.testing.assert_allclose(blobs[i].data, result.get(f"param_after/{i}", result[f"param/{i}"]), rtol=1e-5)
        np.testing.assert_allclose(blobs[i].diff, result[f"param_diff/{i}"], rtol=case["rtol"], atol=case["atol"])


def test_gradient_of_an_in_place_scale_uses_the_top(tmp_path: Path) -> None:
    """With bn_mode INFERENCE, the fork multiplies the top's diff by the overwritten bottom."""
    net = make_net(tmp_path, BN.format("INFERENCE"), (2, 3, 2, 2))
    random = np.random.default_rng(0)
    x, dy, scale, shift = (random.normal(size=shape) for shape in ((2, 3, 2, 2), (2, 3, 2, 2), (3,), (3,)))
    for blob, value in zip(net.params["layer"], (scale, shift), strict=True):
        blob.data[0, :, 0, 0], blob.diff[...] = value, 7
    net.forward(x=x)
    net.blobs["x"].diff[...] = dy
    net.backward()
    broadcast = (slice(None), None, None)
    y = x * scale[broadcast] + shift[broadcast]
    for blob, expected in zip(net.params["layer"], ((dy * y).sum((0, 2, 3)), dy.sum((0, 2, 3))), strict=True):
        np.testing.assert_allclose(blob.diff.ravel(), expected, rtol=1e-5)
    np.testing.assert_allclose(net.blobs["x"].diff, dy * scale[broadcast], rtol=1e-5)


@pytest.mark.parametrize("transpose", [False, True])
def test_inner_product_normalizes_groups_of_its_weight(tmp_path: Path, transpose: bool) -> None:
    """The fork normalizes K consecutive numbers at a time, even if the weight is (K, num_output)."""
    param = f"inner_product_param {{ num_output: 3 normalize: true transpose: {str(transpose).lower()} }}"
    net = make_net(tmp_path, f'layer {{ name: "layer" type: "InnerProduct" bottom: "x" top: "y" {param} }}', (2, 4))
    random = np.random.default_rng(0)
    weight = net.params["layer"][0].data
    weight[...] = random.normal(size=weight.shape)
    groups = weight.reshape(3, 4).astype(np.float64)
    normalized = (groups / np.sqrt((groups**2).sum(1, keepdims=True) + 1e-6)).reshape(weight.shape)
    x: Any = random.normal(size=(2, 4))
    top = net.forward(x=x)["y"]
    np.testing.assert_allclose(net.params["layer"][0].data, normalized, rtol=1e-5)
    np.testing.assert_allclose(top, x @ (normalized if transpose else normalized.T), rtol=1e-4)


@pytest.mark.parametrize("method", ["MAX", "AVE", "TILE"])
@pytest.mark.parametrize(
    ("window", "top"), [((2, 2, 2, 2), (5, 7)), ((3, 2, 2, 3), (7, 10)), ((2, 3, 1, 2), (4, 9)), ((2, 2, 3, 3), (4, 5))]
)
def test_unpooling_equals_loops(tmp_path: Path, method: str, window: tuple[int, ...], top: tuple[int, int]) -> None:
    """Without a mask; sizes are not always multiples of the stride, and windows overlap or leave gaps."""
    h, w, stride_h, stride_w = window
    text = (
        f"kernel_h: {h} kernel_w: {w} stride_h: {stride_h} stride_w: {stride_w} unpool_h: {top[0]} unpool_w: {top[1]}"
    )
    layer = 'layer {{ name: "layer" type: "Unpooling" bottom: "x" top: "y" unpooling_param {{ unpool: {} {} }} }}'
    bottom_size = tuple(min(-(-n // s), 4) for n, s in zip(top, (stride_h, stride_w), strict=True))
    if method == "MAX":  # its windows may begin outside of the top
        bottom_size = (bottom_size[0] + 1, bottom_size[1])
    net = make_net(tmp_path, layer.format(method, text), (1, 2, *bottom_size))
    random = np.random.default_rng(0)
    x, dy = random.normal(size=(1, 2, *bottom_size)), random.normal(size=(1, 2, *top))
    y, dx = np.zeros_like(dy), np.zeros_like(x)
    for i, j in np.ndindex(bottom_size):
        top_position, cell = (min(i * stride_h, top[0] - 1), min(j * stride_w, top[1] - 1)), (..., i, j)
        if method == "MAX":
            y[(..., *top_position)], dx[cell] = x[cell], dy[(..., *top_position)]
            continue
        cells = (..., slice(i * stride_h, i * stride_h + h), slice(j * stride_w, j * stride_w + w))
        area = dy[cells][0, 0].size
        y[cells] += x[cell][..., None, None] / (area if method == "AVE" else 1)
        dx[cell] = dy[cells].sum((2, 3)) / area
    np.testing.assert_allclose(net.forward(x=x)["y"], y, atol=1e-5)
    net.blobs["y"].diff[...] = dy
    np.testing.assert_allclose(net.backward()["x"], dx, atol=1e-5)


def test_labels_of_annotated_data_have_a_row_for_each_object(monkeypatch: pytest.MonkeyPatch) -> None:
    """The label has the fork's shape, although passes are compiled for a padded label."""
    monkeypatch.chdir(FORKS / "detection" / "recorded" / "data" / "photos_a")
    loss = 'layer { name: "sum" type: "Reduction" bottom: "label" top: "sum" reduction_param { axis: 2 } }'
    net = caffe.Net(Path("warp.prototxt").read_text() + loss, caffe.TEST)
    result = np.load("warp.npz")
    for k in range(3):
        total = net.forward()["sum"]
        expected = result[f"batch/{k}/label"]
        label = net.blobs["label"].data
        assert label.shape == expected.shape
        np.testing.assert_allclose(label, expected, atol=1e-6)
        rows = 64  # the compiled shape, padded with -1
        np.testing.assert_allclose(total.ravel(), expected.sum() - 8 * (rows - expected.shape[2]), rtol=1e-5)
    label[...] = 2  # then passes take the label as it is
    np.testing.assert_allclose(net.forward(start="sum")["sum"].ravel(), 2 * label.size)
