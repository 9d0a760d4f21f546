"""Summaries of nets: shapes, parameters, multiply-adds and receptive field of each layer. The net is not run."""

from .net_summary import (
    FAMILIES,
    Family,
    LayerSummary,
    Summary,
    count_multiply_adds,
    get_family,
    summarize,
    summarize_layer,
)

__all__ = [
    "FAMILIES",
    "Family",
    "LayerSummary",
    "Summary",
    "count_multiply_adds",
    "get_family",
    "summarize",
    "summarize_layer",
]
