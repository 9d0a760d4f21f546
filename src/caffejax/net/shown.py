"""A net for people: on a line, as a table, in a notebook."""

from __future__ import annotations

from math import prod

from ..graph import Graph
from ..sizes import count_in_words
from ..summary import Summary, summarize


class Shown:
    """What can be printed as a net is.

    Attributes:
        graph: the net's graph.
    """

    graph: Graph

    def __repr__(self) -> str:
        return f"Net {self.graph!r}; {count_in_words(sum(prod(p.spec.shape) for p in self.graph.learnable))} parameters"

    def _repr_html_(self) -> str:
        return self.summary()._repr_html_()

    def summary(self) -> Summary:
        """Return the net's layers in numbers; printed it is a table."""
        return summarize(self.graph)
