"""caffe-windows' variant of Accuracy, for distances instead of scores."""

from __future__ import annotations

from typing import Any

import jax

from ...core.layers.accuracy import accuracy
from ...core.layers.context import Context
from ...core.layers.registry import register_variants


@accuracy.variant(fork_settings=("min_is_better",), origin="caffe-windows")
def accuracy_of_distances(p: Any, distances: jax.Array, labels: jax.Array, *, ctx: Context) -> object:
    """Return the fraction of labels whose distance is among the `top_k` smallest, as a scalar.

    Bottoms and tops are those of Accuracy, with distances instead of scores.
    """
    return accuracy(p, -distances, labels, ctx=ctx)


register_variants(
    "Accuracy",
    lambda layer: "of distances" if layer.accuracy_param.min_is_better else None,
    {"of distances": accuracy_of_distances.type},
    "With `min_is_better` it is the variant of distances.",
)
