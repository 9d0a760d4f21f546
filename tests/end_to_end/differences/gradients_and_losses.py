"""Errors of Caffe and its forks that are not reproduced: accumulated gradients, losses, undefined orders."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import numpy as np
from difference import FORKS, GOLDEN, Comparison, Difference

import caffejax.pycaffe as caffe
from caffejax.core.program.net import Net


def _compute_diff_after_two_passes(
    net: str, arrays: dict[str, Any], layer: str = "layer", param: int = 0
) -> np.ndarray:
    """Run a net forward and backward twice, as a solver with iter_size 2 does; return the diff of one of its params."""
    pycaffe_net = caffe.Net(net, caffe.TRAIN)
    for name, array in arrays.items():
        pycaffe_net.blobs[name].data[...] = array
    for _ in range(2):
        pycaffe_net.forward()
        pycaffe_net.backward()
    return np.array(pycaffe_net.params[layer][param].diff)


def _compare_scale_diffs(net: str) -> list[Comparison]:
    x = np.array([1.0, 2.0, 3.0])
    # the loss is the sum of the tops, so that a pass adds x
    return [
        Comparison(
            "diff of the factors after two backward passes of x = [1, 2, 3]",
            x,
            _compute_diff_after_two_passes(net, {"x": x}),
        )
    ]


def _load_recorded(folder: Path, name: str) -> tuple[dict[str, np.ndarray], Net]:
    path = folder / name
    return dict(np.load(path.with_suffix(".npz"))), Net(path.with_suffix(".prototxt"), "TRAIN")


def _compare_param_diffs(folder: Path, name: str) -> list[Comparison]:
    """The diff of a param that had one before the backward pass, as recorded and here."""
    result, net = _load_recorded(folder, name)
    params, state = net.init(jax.random.key(0))
    blobs = net.graph.layer("layer").params
    arrays = [result[f"param/{i}"] for i in range(len(blobs))]
    params["layer"] = {p.slot.name: x for p, x in zip(blobs, arrays, strict=True) if p.spec.learnable}
    inputs = {blob: result[f"bottom/{blob}"] for blob in net.input_names}
    top = net.graph.layer("layer").tops[0]
    _, vjp = jax.vjp(lambda p: net.apply(p, state, inputs, blobs=(top,))[0][top], params)
    diff = vjp(result[f"top_diff/{top}"])[0]["layer"][blobs[0].slot.name]
    diff_before = result["param_diff_before/0"]
    description = f"first numbers of the diff of param 0, which was {_format_first(diff_before)}"
    return [Comparison(description, result["param_diff/0"].ravel()[:3], np.ravel(diff + diff_before)[:3])]


def _format_first(x: np.ndarray) -> str:
    return "[" + ", ".join(f"{v:.4g}" for v in x.ravel()[:3]) + "]"


def _compare_hinge_gradient(net: str) -> list[Comparison]:
    result = dict(np.load(GOLDEN / "nets" / "loss_weights.npz"))
    model = Net(GOLDEN / "nets" / "loss_weights.prototxt", "TRAIN")
    state = model.init(jax.random.key(0)).state
    params = model.map_params(lambda p: result[f"param/{p.slot.layer}/{p.index}"] if p.spec.learnable else None)
    inputs = {name: result[f"in/{name}"] for name in model.input_names}
    grads = jax.grad(lambda p: model.loss(p, state, inputs, jax.random.key(0))[0])(params)
    return [
        Comparison(
            "first numbers of the gradient of the bias of layer a", result["paramdiff/a/1"][:3], grads["a"]["bias"][:3]
        )
    ]


def _compare_region_losses(net: str) -> list[Comparison]:
    result, model = _load_recorded(FORKS / "rcnn" / "recorded", "SmoothL1LossOHEM/default")
    losses = model.apply({}, {}, {name: result[f"bottom/{name}"] for name in model.input_names})[0]["per_roi"]
    return [Comparison("losses of the regions", result["top/per_roi"].ravel(), losses.ravel())]


def _compare_invalid_label(net: str) -> list[Comparison]:
    model = Net(net, "TRAIN")
    loss = model.apply({}, {}, {"x": np.ones((2, 3), np.float32), "label": np.array([1.0, 3.0])})[0]["loss"]
    return [Comparison("loss of the labels [1, 3] among 3 classes", "whatever is behind the scores in memory", loss)]


DIFFERENCES = [
    Difference(
        "Scale: diffs of its factors add up",
        "Where nothing precedes the axis of the factors, or they are as many as the bottom's numbers, Caffe's backward "
        "pass overwrites their diff. With `iter_size`, or factors that layers share, all but the last pass is lost. "
        "Here diffs always add up.",
        "scale_layer.cpp, Backward_cpu: product and sum_result are scale->mutable_cpu_diff()",
        'layer { name: "x" type: "Input" top: "x" input_param { shape { dim: 3 } } }\n'
        'layer { name: "layer" type: "Scale" bottom: "x" top: "y" loss_weight: 1 scale_param { axis: 0 } }',
        _compare_scale_diffs,
    ),
    Difference(
        "HingeLoss: the diff of its bottom",
        "Caffe works in the bottom's diff during the forward pass. If the loss has weight 0 it has no backward pass, "
        "and the Split above adds what is there to the gradients of the other branches. Here a loss of weight 0 adds "
        "nothing.",
        "recorded: tests/golden/nets/loss_weights.npz; hinge_loss_layer.cpp, Forward_cpu: bottom_diff",
        "tests/golden/nets/loss_weights.prototxt",
        _compare_hinge_gradient,
    ),
    Difference(
        "Labels outside of the classes",
        "Caffe reads beyond the array: SoftmaxWithLoss, MultinomialLogisticLoss, HingeLoss, InfogainLoss, and those "
        "that pick by number, such as Embed and BatchReindex. Here results of such labels are NaN, and training "
        "stops with an error that names the label.",
        "softmax_loss_layer.cpp, Forward_cpu: prob_data[i * dim + label_value * inner_num_ + j]; the DCHECK before it "
        "is left out of releases",
        'layer { name: "x" type: "Input" top: "x" top: "label"\n'
        "  input_param { shape { dim: 2 dim: 3 } shape { dim: 2 } } }\n"
        'layer { name: "loss" type: "SoftmaxWithLoss" bottom: "x" bottom: "label" top: "loss" }',
        _compare_invalid_label,
    ),
    Difference(
        "BN of SegNet, Convolution3D and Deconvolution3D: diffs add up in training",
        "The backward pass of SegNet's BN and of C3D's convolutions overwrites the diffs of their params. With "
        "`iter_size`, all but the last pass is lost. Here training adds them up. `Net.backward` of the Python "
        "interface overwrites them.",
        "recorded: tests/forks/segmentation/recorded/BN/segnet_overwrites.npz",
        "tests/forks/segmentation/recorded/BN/segnet_overwrites.prototxt",
        lambda net: _compare_param_diffs(FORKS / "segmentation" / "recorded", "BN/segnet_overwrites"),
    ),
    Difference(
        "SmoothL1LossOHEM: losses of the regions",
        "The recorded second top has the loss of the first place only, and zeros. The fork's kernel goes through all "
        "places, as BoxAnnotatorOHEM, which ranks them, needs it; so does the layer here. The first ones agree.",
        "recorded: tests/forks/rcnn/recorded/SmoothL1LossOHEM/default.npz; smooth_L1_loss_ohem_layer.cu, "
        "kernel_channel_sum: CUDA_KERNEL_LOOP(index, num * spatial_dim)",
        "tests/forks/rcnn/recorded/SmoothL1LossOHEM/default.prototxt",
        _compare_region_losses,
    ),
]
