"""Settings and values beyond the recorded cases: extremes, zeros, files, second tops and fillers."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from caffejax.base.errors import GraphError
from caffejax.core.program.net import Net
from caffejax.core.schema.caffe_pb2 import BlobProto, BlobShape
from layer_nets import net_text


def test_single_kernel_h_or_kernel_w_is_ignored_with_kernel_size() -> None:
    """Caffe checks for `kernel_size` or both `kernel_h` and `kernel_w`; one of the two alone passes the check."""
    x = np.random.default_rng(0).normal(size=(1, 2, 7, 8))
    expected, _ = run_layer(net_text("Pooling", "pooling_param { kernel_size: 3 stride: 2 }", [x.shape]), x)
    for fields in ("kernel_h: 2", "kernel_w: 2"):
        result, _ = run_layer(
            net_text("Pooling", f"pooling_param {{ kernel_size: 3 {fields} stride: 2 }}", [x.shape]), x
        )
        np.testing.assert_array_equal(result["t0"], expected["t0"])
    for fields in ("kernel_h: 2 kernel_w: 2", "stride: 2 stride_h: 2", "pad: 1 pad_w: 1"):
        with pytest.raises(GraphError, match="not both"):
            Net(net_text("Pooling", f"pooling_param {{ kernel_size: 3 {fields} }}", [x.shape]))


def test_accuracy_with_top_k_0_is_0() -> None:
    scores, labels = np.eye(4), np.arange(4)
    text = net_text("Accuracy", "accuracy_param { top_k: 0 }", [scores.shape, labels.shape])
    net = Net(text, "TRAIN")
    blobs, _ = net.apply(*net.init(jax.random.key(0)), {"b0": jnp.asarray(scores), "b1": jnp.asarray(labels)})
    assert float(blobs["t0"]) == 0


@pytest.mark.parametrize("kernels", ["fast", "reference"])
def test_relu_of_negative_numbers_is_0_not_minus_0(kernels: Any) -> None:
    """All recorded cases agree: the formula is max(x, 0) + slope * min(x, 0)."""
    net = Net(net_text("ReLU", "", [(3,)]), kernels=kernels)
    blobs, _ = net.apply(*net.init(jax.random.key(0)), {"b0": jnp.array([-1.0, 2.0, jnp.nan])})
    np.testing.assert_array_equal(blobs["t0"], [0, 2, np.nan])
    assert not np.signbit(blobs["t0"][0])


parametrize_backward = pytest.mark.parametrize("backward", ["autodiff", "rules"])


def run_layer(
    text: str, *bottoms: Any, backward: Any = "autodiff"
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Return the tops, and the gradient of the sum of the first top by every bottom."""
    net = Net("force_backward: true\n" + text, "TRAIN", backward=backward)
    params, state = net.init(jax.random.key(0))

    def sum_first_top(inputs: Any) -> Any:
        blobs, _ = net.apply(params, state, inputs, blobs=net.graph.layer("layer").tops)
        return jnp.sum(blobs["t0"]), blobs

    inputs = {f"b{i}": jnp.asarray(b, jnp.float32) for i, b in enumerate(bottoms)}
    (_, blobs), diffs = net.jit(jax.value_and_grad(sum_first_top, has_aux=True))(inputs)
    return jax.tree.map(np.asarray, (blobs, diffs))


@parametrize_backward
@pytest.mark.parametrize(
    ("layer_type", "text", "x", "y", "dy"),
    [
        ("ELU", "", [1e4, -1e4], [1e4, -1], [1, 0]),
        ("BNLL", "", [1e4, -1e4], [1e4, 0], [1, 0]),
        ("Sigmoid", "", [1e4, -1e4], [1, 0], [0, 0]),
        ("Swish", "", [1e4, -1e4], [1e4, 0], [1, 0]),
        ("Power", "power_param { power: 3 }", [0, -2], [0, -8], [0, 12]),
        ("Power", "power_param { power: 2 }", [0, -2], [0, 4], [0, -4]),
        ("Power", "power_param { power: 0 }", [0, -2], [1, 1], [0, 0]),
        ("Power", "power_param { power: 2 shift: 3 scale: 0 }", [0, np.inf], [9, 9], [0, 0]),
        ("Exp", "exp_param { base: 2 shift: 200 scale: 100 }", [-2, -1.99], [1, 2], [69.3147, 138.629]),
        ("Clip", "clip_param { min: 1 max: -1 }", [-5, 0], [1, 1], [0, 0]),
    ],
)
def test_extreme_bottoms_give_the_limits(
    layer_type: str, text: str, x: list[float], y: list[float], dy: list[float], backward: str
) -> None:
    tops, diffs = run_layer(net_text(layer_type, text, [(2,)]), x, backward=backward)
    np.testing.assert_allclose(tops["t0"], y, rtol=1e-4)
    np.testing.assert_allclose(diffs["b0"], dy, rtol=1e-4)


@parametrize_backward
def test_gradient_of_a_product_with_a_zero(backward: str) -> None:
    text = net_text("Eltwise", "eltwise_param { operation: PROD stable_prod_grad: false }", [(2,)] * 3)
    _, diffs = run_layer(text, [0, 0], [2, 0], [3, 5], backward=backward)
    np.testing.assert_array_equal(list(diffs.values()), [[6, 0], [0, 0], [0, 0]])


@parametrize_backward
def test_gradient_of_equal_maxima(backward: str) -> None:
    text = net_text("Eltwise", "eltwise_param { operation: MAX }", [(4,)] * 3)
    _, diffs = run_layer(text, [1, 1, 0, 1], [1, 0, 1, 0], [1, 1, 1, 2], backward=backward)
    np.testing.assert_array_equal(list(diffs.values()), [[0, 1, 0, 0], [1, 0, 1, 0], [0, 0, 0, 1]])


@parametrize_backward
def test_sigmoid_cross_entropy_of_large_scores(backward: str) -> None:
    text = net_text("SigmoidCrossEntropyLoss", "", [(1, 3), (1, 3)])
    tops, diffs = run_layer(text, [[1e4, -1e4, 0]], [[0, 1, 1]], backward=backward)
    np.testing.assert_allclose(tops["t0"], 2e4 + np.log(2), rtol=1e-6)
    np.testing.assert_allclose(diffs["b0"], [[1, -1, -0.5]])


def test_losses_are_clamped() -> None:
    scores, labels = [[0, 1e6]], [0]
    tops, _ = run_layer(net_text("SoftmaxWithLoss", "", [(1, 2), (1,)]), scores, labels)
    np.testing.assert_allclose(tops["t0"], -np.log(np.finfo(np.float32).tiny), rtol=1e-6)
    text = net_text("MultinomialLogisticLoss", "", [(1, 2), (1,)])
    np.testing.assert_allclose(run_layer(text, [[0, 1]], labels)[0]["t0"], 20 * np.log(10), rtol=1e-6)


@parametrize_backward
def test_infogain_loss_with_matrix_from_file_and_softmax_top(tmp_path: Path, backward: str) -> None:
    scores, labels = np.random.default_rng(0).normal(size=(4, 3)), [0, 2, 1, 2]
    matrix = np.float32([[1, 0, 0.5], [0.2, 2, 0], [0, 0, 1]])
    path = tmp_path / "h.binaryproto"
    path.write_bytes(BlobProto(shape=BlobShape(dim=[1, 1, 3, 3]), data=matrix.ravel()).SerializeToString())

    text = f'infogain_loss_param {{ source: "{path}" }} loss_weight: 1 loss_weight: 0'
    tops, diffs = run_layer(net_text("InfogainLoss", text, [(4, 3), (4,)], tops=2), scores, labels, backward=backward)

    log_prob = np.asarray(jax.nn.log_softmax(scores))
    np.testing.assert_allclose(tops["t0"], -np.sum(matrix[labels] * log_prob) / 4, rtol=1e-6)
    np.testing.assert_allclose(tops["t1"], np.exp(log_prob), rtol=1e-6)
    expected = (np.exp(log_prob) * matrix[labels].sum(1, keepdims=True) - matrix[labels]) / 4
    np.testing.assert_allclose(diffs["b0"], expected, atol=1e-6)


def test_force_backward_with_labels() -> None:
    contrastive_net = Net("force_backward: true\n" + net_text("ContrastiveLoss", "", [(2, 3), (2, 3), (2,)]))
    assert contrastive_net.graph.layer("layer").bottom_need_backward == (True, True, False)
    contrastive_net.graph.check_backward()
    infogain_net = Net("force_backward: true\n" + net_text("InfogainLoss", "", [(2, 3), (2,), (3, 3)]))
    with pytest.raises(GraphError, match="cannot propagate a gradient to bottom 2"):
        infogain_net.graph.check_backward()


def test_embed_returns_nan_for_indices_out_of_range() -> None:
    net = Net(net_text("Embed", "embed_param { num_output: 2 input_dim: 3 }", [(3,)]))
    tops, _ = net.apply(*net.init(jax.random.key(0)), {"b0": jnp.asarray([-2.0, 2.9, 3.0])})
    np.testing.assert_array_equal(np.isnan(tops["t0"]).all(axis=1), [True, False, True])


@pytest.mark.parametrize(
    ("layer_type", "text", "expected"),
    [
        ("PReLU", "", [[0.25] * 3]),
        ("PReLU", "prelu_param { channel_shared: true filler { value: 2 } }", [2]),
        ("Bias", "", [[0] * 3]),
        ("Scale", "scale_param { bias_term: true bias_filler { value: 3 } }", [[1] * 3, [3] * 3]),
        ("Scale", "scale_param { num_axes: 0 filler { value: 2 } }", [2]),
    ],
)
def test_initial_values_of_blobs(layer_type: str, text: str, expected: list[Any]) -> None:
    params, _ = Net(net_text(layer_type, text, [(2, 3, 4)])).init(jax.random.key(0))
    for blob, value in zip(params["layer"].values(), expected, strict=True):
        np.testing.assert_array_equal(blob, value)
