"""Tests of losses of probabilities, but SoftmaxWithLoss."""

from pathlib import Path

import jax
import numpy as np
import pytest

from caffejax import Net
from caffejax.base.errors import GraphError
from caffejax.core.schema.caffe_pb2 import BlobProto, BlobShape
from layer_nets import differentiate_layer, net_text, run_layer
from layer_suite import BATCH, LABELS, MATRIX, joint_batches, layer_case, normalizations_case, properties, recorded

MAP = (BATCH, 3, 2, 4)

test_recorded = recorded("InfogainLoss", "MultinomialLogisticLoss", "SigmoidCrossEntropyLoss")
test_properties = properties(
    layer_case("InfogainLoss", "", MATRIX, LABELS, (1, 1, 5, 5), classes=2),
    layer_case("MultinomialLogisticLoss", "", MATRIX, LABELS, distribution="probabilities", classes=5),
    layer_case("SigmoidCrossEntropyLoss", "loss_param { ignore_label: 1 }", MATRIX, MATRIX),
)
LOSSES = (
    layer_case("InfogainLoss", "", MAP, (BATCH, 2, 4), (1, 1, 3, 3), classes=3),
    layer_case("SigmoidCrossEntropyLoss", "", MAP, MAP),
)
test_joint_batches = joint_batches(
    *(normalizations_case(loss, **ignored) for loss in LOSSES for ignored in ({}, {"ignore_label": 1}))
)


@pytest.mark.parametrize("backward", ["autodiff", "rules"])
def test_sigmoid_cross_entropy_loss_of_large_scores(backward: str) -> None:
    bottoms = [[1e4, -1e4, 0]], [[0, 1, 1]]
    tops, diffs = differentiate_layer("SigmoidCrossEntropyLoss", "", *bottoms, backward=backward)
    np.testing.assert_allclose(tops[0], 2e4 + np.log(2), rtol=1e-6)
    np.testing.assert_allclose(diffs[0], [[1, -1, -0.5]])


def test_multinomial_logistic_loss_is_clamped() -> None:
    (loss,) = run_layer("MultinomialLogisticLoss", "", [[0, 1]], [0], phase="TRAIN")
    np.testing.assert_allclose(loss, 20 * np.log(10), rtol=1e-6)


@pytest.mark.parametrize("backward", ["autodiff", "rules"])
def test_infogain_loss_with_matrix_from_file_and_softmax_top(tmp_path: Path, backward: str) -> None:
    scores, labels = np.random.default_rng(0).normal(size=(4, 3)), [0, 2, 1, 2]
    matrix = np.float32([[1, 0, 0.5], [0.2, 2, 0], [0, 0, 1]])
    path = tmp_path / "h.binaryproto"
    path.write_bytes(BlobProto(shape=BlobShape(dim=[1, 1, 3, 3]), data=matrix.ravel()).SerializeToString())

    text = f'infogain_loss_param {{ source: "{path}" }} loss_weight: 1 loss_weight: 0'
    tops, diffs = differentiate_layer("InfogainLoss", text, scores, labels, tops=2, backward=backward)

    log_prob = np.asarray(jax.nn.log_softmax(scores))
    np.testing.assert_allclose(tops[0], -np.sum(matrix[labels] * log_prob) / 4, rtol=1e-6)
    np.testing.assert_allclose(tops[1], np.exp(log_prob), rtol=1e-6)
    expected = (np.exp(log_prob) * matrix[labels].sum(1, keepdims=True) - matrix[labels]) / 4
    np.testing.assert_allclose(diffs[0], expected, atol=1e-6)


def test_force_backward_with_a_matrix_of_infogain_loss() -> None:
    net = Net("force_backward: true\n" + net_text("InfogainLoss", "", [(2, 3), (2,), (3, 3)]))
    with pytest.raises(GraphError, match="cannot propagate a gradient to bottom 2"):
        net.graph.check_backward()
