"""What a net is, layer by layer, in numbers. Nothing is run for it."""

from .multiply_adds import multiply_adds
from .net_summary import FAMILIES, Family, LayerSummary, Summary, family_of, layer_summary, summarize

__all__ = [
    "FAMILIES",
    "Family",
    "LayerSummary",
    "Summary",
    "family_of",
    "layer_summary",
    "multiply_adds",
    "summarize",
]
