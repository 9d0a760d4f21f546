"""Summaries of nets: shapes, parameters, multiply-adds and receptive field of each layer. The net is not run."""

from .multiply_adds import multiply_adds
from .net_summary import FAMILIES, Family, LayerSummary, Summary, family_of, layer_sizes, layer_summary, summarize

__all__ = [
    "FAMILIES",
    "Family",
    "LayerSummary",
    "Summary",
    "family_of",
    "layer_sizes",
    "layer_summary",
    "multiply_adds",
    "summarize",
]
