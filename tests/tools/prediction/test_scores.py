"""Blobs with scores, of which results show the softmax, are found by the losses that read them."""

import pytest

from caffejax.core.schema import read_net
from caffejax.tools.prediction.results import find_logits

LAYER = 'layer { name: "x" bottom: "scores" bottom: "label" type: '


@pytest.mark.parametrize(
    ("layer", "is_score"),
    [
        ('"SoftmaxWithLoss" top: "loss"', True),
        ('"SoftmaxWithLoss" top: "loss" include { phase: TRAIN }', True),
        ('"SoftmaxWithLoss" top: "loss" loss_param { weight_by_label_freqs: true }', True),
        ('"SoftmaxWithLoss" top: "loss" top: "prob" top: "losses"', True),
        ('"Accuracy" top: "accuracy"', False),
        ('"SigmoidCrossEntropyLoss" top: "loss"', False),
        ('"OfAnotherPackage" top: "x" include { stage: "other" }', False),
    ],
)
def test_scores_are_the_bottoms_of_softmax_losses(layer: str, is_score: bool) -> None:
    assert find_logits(read_net(f"{LAYER}{layer} }}")) == ({"scores"} if is_score else set())
