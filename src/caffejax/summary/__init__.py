"""What a net is, layer by layer, in numbers. Nothing is run for it."""

from .counting import multiply_adds
from .family import FAMILIES, Family, family_of
from .layer import LayerSummary, layer_summary
from .net import Summary, summarize

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
