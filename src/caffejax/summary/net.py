"""A net in numbers: a table for people, JSON for programs."""

from __future__ import annotations

import html
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ..graph import Graph
from ..sizes import count_in_words, counted, in_words
from ..tables import aligned, printable
from .field import fields_of
from .layer import LayerSummary, layer_summary

_TITLES = ("layer", "type", "tops", "parameters", "multiply-adds", "activations", "field", "stride")
_TEXT_COLUMNS = 3


@dataclass(frozen=True, repr=False)
class Summary:
    """A net, layer by layer. Printed it is a table; notebooks show it as one.

    Attributes:
        name: the net's name.
        phase: "TRAIN" or "TEST".
        layers: in the order of execution, without splits that the net added.
    """

    name: str
    phase: str
    layers: tuple[LayerSummary, ...]

    @property
    def parameters(self) -> int:
        """Numbers in all params, running statistics included."""
        return sum(layer.parameters for layer in self.layers)

    @property
    def multiply_adds(self) -> int:
        """Of a forward pass, for the whole batch; host layers do not count."""
        return sum(layer.multiply_adds or 0 for layer in self.layers)

    @property
    def activation_bytes(self) -> int:
        """Bytes of all activations, were all kept."""
        return sum(layer.activation_bytes for layer in self.layers)

    def to_json(self) -> str:
        """Write `{"name", "phase", "layers": [{...}], "total": {...}}`, with the exact numbers."""
        return json.dumps(self.as_dict(), indent=1)

    def as_dict(self) -> dict[str, Any]:
        """Return what `to_json` writes, as plain values."""
        totals = {name: getattr(self, name) for name in ("parameters", "multiply_adds", "activation_bytes")}
        return {"name": self.name, "phase": self.phase, "layers": list(map(_plain, self.layers)), "total": totals}

    def __str__(self) -> str:
        return "\n".join([*aligned(self._rows(), _TEXT_COLUMNS), "", self._totals()])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        head, *rows = ("".join(f"<td>{html.escape(cell)}</td>" for cell in row) for row in self._rows())
        body = "".join(f"<tr>{row}</tr>" for row in rows)
        return f"<table><thead><tr>{head}</tr></thead>{body}</table><p>{html.escape(self._totals())}</p>"

    def _rows(self) -> Iterator[Sequence[str]]:
        yield _TITLES
        for layer in self.layers:
            products = "?" if layer.multiply_adds is None else count_in_words(layer.multiply_adds)
            memory = in_words(layer.activation_bytes) if layer.activation_bytes else "-"
            space = _by("x", layer.receptive_field), _by("x", layer.stride)
            tops = " ".join(_by("x", shape) or "scalar" for shape in layer.top_shapes)
            yield (
                layer.name,
                layer.type,
                tops,
                count_in_words(layer.parameters),
                products,
                memory,
                *(s or "-" for s in space),
            )

    def _totals(self) -> str:
        hosts = sum(layer.multiply_adds is None for layer in self.layers)
        unknown = f" (without {hosts} on the host)" if hosts else ""
        name = printable(self.name) or "net"
        return (
            f"{name} ({self.phase}): {counted(len(self.layers), 'layer')}, "
            f"{counted(self.parameters, 'parameter')}, {counted(self.multiply_adds, 'multiply-add')}{unknown}, "
            f"activations {in_words(self.activation_bytes)}"
        )


def summarize(graph: Graph) -> Summary:
    """Return a net's layers in numbers. Nothing is run for it."""
    fields = fields_of(graph)
    layers = [x for x in graph.layers if not x.inserted_split]
    return Summary(graph.name, graph.phase, tuple(layer_summary(x, graph, field=fields[x.key]) for x in layers))


def _plain(layer: LayerSummary) -> dict[str, Any]:
    own = {name: value for name, value in asdict(layer).items() if name != "field"}
    return own | {"receptive_field": layer.receptive_field, "stride": layer.stride}


def _by(between: str, numbers: Sequence[float] | None) -> str:
    return between.join(str(n) if isinstance(n, int) else f"{n:g}" for n in numbers or ())
