"""caffe-windows' variant of Accuracy, for distances instead of scores."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax

from ...core.layers.accuracy import ACCURACY, accuracy
from ...core.layers.context import Context
from ...core.layers.registry import register_variants
from ...core.layers.types import LayerDocs, Traced


def accuracy_of_distances(p: Any, distances: jax.Array, labels: jax.Array, *, ctx: Context) -> object:
    """Return the fraction of labels whose distance is among the `top_k` smallest, as a scalar.

    Bottoms and tops are those of Accuracy, with distances instead of scores.
    """
    return accuracy(p, -distances, labels, ctx=ctx)


ACCURACY_OF_DISTANCES = replace(
    ACCURACY,
    signature=replace(ACCURACY.signature, fork_settings=("min_is_better",)),
    implementation=Traced(accuracy_of_distances),
    docs=LayerDocs(origin="caffe-windows"),
)

register_variants(
    "Accuracy",
    lambda layer: "of distances" if layer.accuracy_param.min_is_better else None,
    {"of distances": ACCURACY_OF_DISTANCES},
    "With `min_is_better` it is the variant of distances.",
)
