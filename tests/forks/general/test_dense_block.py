"""Tests of DenseBlock."""

from typing import Any

import jax
import numpy as np
import pytest

from caffejax.base.errors import CaffejaxError
from caffejax.core.program.net import Net
from layer_nets import net_text
from layer_suite import BATCH, fork_properties, layer_case, recorded

FILLERS = (
    'Filter_Filler { type: "msra" } BN_Scaler_Filler { type: "uniform" min: 0.5 max: 2 } '
    'BN_Bias_Filler { type: "gaussian" std: 0.3 }'
)
BOTTOM = (BATCH, 3, 4, 5)

test_recorded = recorded("DenseBlock", family="general")
test_properties = fork_properties(
    layer_case("DenseBlock", f"denseblock_param {{ numTransition: 2 growthRate: 2 {FILLERS} }}", BOTTOM),
    layer_case(
        "DenseBlock",
        f"denseblock_param {{ numTransition: 2 growthRate: 1 use_BC: true {FILLERS} }}",
        BOTTOM,
        name="bottleneck",
    ),
    layer_case(
        "DenseBlock",
        f"denseblock_param {{ numTransition: 2 growthRate: 2 use_dropout: true dropout_amount: 0.3 {FILLERS} }}",
        BOTTOM,
        name="dropout",
        random=True,
    ),
    layer_case(
        "DenseBlock",
        f"denseblock_param {{ numTransition: 2 growthRate: 2 {FILLERS} }}",
        BOTTOM,
        name="test",
        phase="TEST",
    ),
)


def convolve(x: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Convolve as the fork's CPU code does: cell k of a filter is read at position + size / 2 - k."""
    n, _, height, width = x.shape
    size = weight.shape[2]
    top = np.zeros((n, len(weight), height, width))
    for i, j, a, b in np.ndindex(height, width, size, size):
        row, column = i + size // 2 - a, j + size // 2 - b
        if 0 <= row < height and 0 <= column < width:
            top[:, :, i, j] += x[:, :, row, column] @ weight[:, :, a, b].T
    return top


class ReferenceBlock:
    """The fork's rule in float64 NumPy; blobs are changed in place."""

    def __init__(self, transitions: int, bottleneck: bool, training: bool, blobs: list[np.ndarray]) -> None:
        self.transitions, self.bottleneck, self.training, self.blobs = transitions, bottleneck, training, blobs

    def normalize(self, x: np.ndarray, group: int, i: int) -> np.ndarray:
        index = [(group + k) * self.transitions + i for k in range(4)]
        scale, bias, mean, variance = (self.blobs[k] for k in index)
        if self.training:
            batch_mean = x.mean((0, 2, 3), keepdims=True)
            batch_variance = x.var((0, 2, 3), keepdims=True)
            count = x.size // x.shape[1]
            self.blobs[index[2]] = 0.75 * mean + 0.25 * batch_mean
            self.blobs[index[3]] = 0.75 * variance + 0.25 * batch_variance * count / (count - 1)
            mean, variance = batch_mean, batch_variance
        else:
            weight = self.blobs[-1][0]
            mean, variance = (mean / weight, variance / weight) if weight else (mean, variance)
        return np.maximum((x - mean) / np.sqrt(variance + 1e-5) * scale + bias, 0)

    def run(self, x: np.ndarray) -> np.ndarray:
        for i in range(self.transitions):
            y = self.normalize(x, 1, i)
            if self.bottleneck:
                y = self.normalize(convolve(y, self.blobs[5 * self.transitions + i]), 6, i)
            x = np.concatenate([x, convolve(y, self.blobs[i])], axis=1)
        return x


def draw_blobs(shapes: list[Any], random: np.random.Generator) -> list[np.ndarray]:
    blobs = [random.normal(size=shape) / 3 for shape in shapes]
    return [np.abs(b) + 0.7 if b.ndim == 4 and b.shape[2:] == (1, 1) and len(b) == 1 else b for b in blobs]


@pytest.mark.parametrize(("phase", "weight_sum"), [("TRAIN", 0), ("TEST", 0), ("TEST", 1.5)])
@pytest.mark.parametrize("bottleneck", [False, True])
def test_dense_block_equals_the_rule_in_numpy(bottleneck: bool, phase: str, weight_sum: float) -> None:
    random = np.random.default_rng(0)
    text = f"numTransition: 3 growthRate: 2 moving_average_fraction: 0.25 use_BC: {str(bottleneck).lower()} {FILLERS}"
    net = Net(net_text("DenseBlock", f"denseblock_param {{ {text} }}", [(2, 3, 4, 5)]), phase)
    params, state = net.init(jax.random.key(0))
    names = net.graph.blob_names["layer"]
    shapes = [np.shape({**params["layer"], **state["layer"]}[name]) for name in names]
    assert len(shapes) == (31 if bottleneck else 16)
    blobs = draw_blobs(shapes, random)
    blobs[-1] = np.array([weight_sum])
    arrays = dict(zip(names, (b.astype(np.float32) for b in blobs), strict=True))
    trees = ({"layer": {name: arrays[name] for name in tree["layer"]}} for tree in (params, state))
    x = random.normal(size=(2, 3, 4, 5))
    tops, new_state = net.apply(*trees, {"b0": x.astype(np.float32)}, jax.random.key(0))
    reference = ReferenceBlock(3, bottleneck, phase == "TRAIN", blobs)
    np.testing.assert_allclose(tops["t0"], reference.run(x), rtol=1e-5, atol=1e-5)
    for name, value in new_state["layer"].items():
        np.testing.assert_allclose(value, reference.blobs[names.index(name)], rtol=2e-6, atol=2e-6)


def test_sums_of_weights_are_taken_in_by_training() -> None:
    text = f"denseblock_param {{ numTransition: 1 growthRate: 2 {FILLERS} }}"
    net = Net(net_text("DenseBlock", text, [(2, 3, 4, 5)]), "TRAIN")
    params, state = net.init(jax.random.key(0))
    sums = {name: np.full(np.shape(a), 3, np.float32) for name, a in state["layer"].items()}
    averages = {name: np.full(np.shape(a), 1 if np.size(a) > 1 else 0, np.float32) for name, a in sums.items()}
    x = np.random.default_rng(0).normal(size=(2, 3, 4, 5)).astype(np.float32)
    new_states = [net.apply(params, {"layer": s}, {"b0": x})[1]["layer"] for s in (sums, averages)]
    for of_sums, of_averages in zip(*(s.values() for s in new_states), strict=True):
        np.testing.assert_allclose(of_sums, of_averages, rtol=1e-6)


@pytest.mark.parametrize(
    ("text", "shape", "message"),
    [
        ("numTransition: 0", (2, 3, 4, 5), "numTransition must be 1 to 128 and growthRate positive, not 0 and 12"),
        ("moving_average_fraction: 1.5", (2, 3, 4, 5), "must be from 0 to 1, not 1.5"),
        ("use_dropout: true dropout_amount: 1", (2, 3, 4, 5), "dropout_amount must be at least 0 and less than 1"),
        ("", (2, 3), r"needs a bottom with 4 axes .*, not \(2, 3\)"),
    ],
)
def test_invalid_settings_are_refused(text: str, shape: tuple[int, ...], message: str) -> None:
    with pytest.raises(CaffejaxError, match=rf"layer 'layer' \(DenseBlock\): .*{message}"):
        Net(net_text("DenseBlock", f"denseblock_param {{ {text} }}", [shape]))
