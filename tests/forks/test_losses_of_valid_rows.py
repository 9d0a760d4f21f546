"""Each loss and metric, of BVLC and of forks, counts the valid rows of blobs with padding, or says why it cannot."""

from collections.abc import Iterator

from caffejax import LayerType
from caffejax.core.layers import layer_types
from caffejax.core.layers.registry import layer_type
from caffejax.core.layers.types import Variants

NAMES = "Loss", "Accuracy", "Distance"


def iterate_losses_and_metrics() -> Iterator[LayerType]:
    for name in layer_types():
        united = layer_type(name, with_variants=True)
        variants = united.implementation.types.values() if isinstance(united.implementation, Variants) else [united]
        for variant in variants:
            if variant.is_loss or variant.is_metric or any(word in name for word in NAMES):
                yield variant


def test_each_loss_and_metric_counts_valid_rows_or_says_why_not() -> None:
    """`test_declared_traits` compares the tops and the gradients with those without padding."""
    refusing = [x for x in iterate_losses_and_metrics() if not (x.traits.counts_rows or x.traits.row_wise)]
    assert {x.name for x in refusing} == {"AccuracyEncoding", "CTCGreedyDecoder", "CtcLoss"}
    assert [x.name for x in refusing if "no rows of padding, because" not in x.docs.restrictions] == []
