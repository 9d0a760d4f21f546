"""What comparing two dumps found: one row for each array, in the order in which a pass makes them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any, Literal

from ...sizes import counted
from ...tables import printable
from .measure import Distance

Kind = Literal["input", "param", "top", "grad", "diff"]
Verdict = Literal["equal", "parts", "shapes", "only in A", "only in B", "random", "layers"]

_PARTING = ("parts", "shapes", "layers")
_WORDS = {"input": "input", "param": "param", "top": "top", "grad": "gradient of param", "diff": "diff of"}
_TITLES = ("layer", "type", "what", "shape", "max error", "relative", "cosine", "verdict")


@dataclass(frozen=True)
class Row:
    """One array of one layer, in both dumps.

    Attributes:
        layer: the layer that made it: of diffs and gradients the one whose backward pass did.
        type: its type.
        kind: "input", "param", "top", "grad" or "diff".
        name: the blob, or the param's number; of "layers" in what they differ.
        shapes: in A and in B; None where it is absent.
        distance: how far they are apart; None if they cannot be compared.
        verdict: "equal"; "parts" where they are further apart than the tolerances; "shapes" where these differ;
            "only in A", "only in B"; "random" where random numbers decide; "layers" where another layer stands.
        counts: whether the dumps part here.
    """

    layer: str
    type: str
    kind: Kind
    name: str
    shapes: tuple[tuple[int, ...] | None, tuple[int, ...] | None]
    distance: Distance | None
    verdict: Verdict
    counts: bool

    @property
    def what(self) -> str:
        """The array in words."""
        return self.name if self.verdict == "layers" else f"{_WORDS[self.kind]} {self.name}"

    def __str__(self) -> str:
        if self.verdict == "shapes":
            return f"{self.what} has shape {_shape(self.shapes[0])} in A and {_shape(self.shapes[1])} in B"
        if self.distance is None:
            return self.what if self.verdict == "layers" else f"{self.what} is {self.verdict}"
        d = self.distance
        where = f" at {list(d.at or ())}: {d.values[0]:.7g} in A, {d.values[1]:.7g} in B"
        return f"{self.what} is off by {d.error:.3g}, {d.relative:.2g} of its scale{where}"

    def cells(self) -> tuple[str, ...]:
        """Return its line of the table."""
        a, b = self.shapes
        shape = _shape(a if a is not None else b) if None in self.shapes or a == b else f"{_shape(a)} / {_shape(b)}"
        numbers: tuple[str, ...] = ("", "", "")
        if (d := self.distance) is not None:
            numbers = f"{d.error:.2e}", f"{d.relative:.2e}", f"{d.cosine:.6f}"
        return self.layer, self.type, self.what, shape, *numbers, self.verdict.upper() if self.counts else self.verdict


@dataclass(frozen=True)
class Comparison:
    """The rows of two dumps. `str(comparison)` is a table, and says where they first part.

    Attributes:
        rows: in the order in which a pass makes the arrays.
        a, b: what the two are: their files or makers.
        rtol, atol: the tolerances; see `compare`.
        strangers: where most layers of the one are not in the other, that in words; else nothing.
    """

    rows: tuple[Row, ...]
    a: str
    b: str
    rtol: float
    atol: float
    strangers: str = ""

    @property
    def parted(self) -> tuple[Row, ...]:
        """The rows where the dumps part."""
        return tuple(row for row in self.rows if row.counts)

    @property
    def first(self) -> Row | None:
        """Where they first part."""
        return next(iter(self.parted), None)

    @property
    def ok(self) -> bool:
        """Whether they are equal within the tolerances; False if there was nothing to compare."""
        return not self.parted and any(row.verdict == "equal" for row in self.rows)

    def to_json(self) -> str:
        """Return everything as JSON; NaN and infinity are null."""
        found: dict[str, Any] = {"a": self.a, "b": self.b, "rtol": self.rtol, "atol": self.atol, "ok": self.ok}
        found["first"] = None if self.first is None else self.rows.index(self.first)
        found["rows"] = [_as_json(row) for row in self.rows]
        return json.dumps(found, indent=1)

    def __str__(self) -> str:
        # params and inputs are worth a line only where they differ
        shown = [r for r in self.rows if r.kind not in ("param", "input") or r.verdict != "equal"]
        hidden = len(self.rows) - len(shown)
        lines = [
            printable(f"A: {self.a}"),
            printable(f"B: {self.b}"),
            "",
            *_table([_TITLES, *(row.cells() for row in shown)]),
            "",
        ]
        if hidden:
            lines.append(f"Equal params and inputs: {hidden}.")
        return "\n".join([*lines, *map(printable, self._summary())])

    def _summary(self) -> Iterator[str]:
        limits = f"rtol {self.rtol:g}, atol {self.atol:g}"
        for verdict, text in (
            ("random", "with random numbers, not counted (--random counts them)"),
            ("only in A", "in A only"),
            ("only in B", "in B only"),
        ):
            if n := sum(row.verdict == verdict and not row.counts for row in self.rows):
                yield f"{counted(n, 'array')} {text}."
        if self.strangers:
            yield f"{self.strangers[0].upper()}{self.strangers[1:]}."
        if (first := self.first) is None:
            n = sum(row.verdict == "equal" for row in self.rows)
            yield f"All {n} arrays that both have are equal ({limits})." if n else "There was nothing to compare."
            if zeros := sum(r.kind == "top" and r.distance is not None and r.distance.scale == 0 for r in self.rows):
                yield f"{counted(zeros, 'top')} of these prove nothing: all 0 in both, as without fillers weights are."
            return
        yield f"{len(self.parted)} of {len(self.rows)} arrays part ({limits})."
        yield f"They first part in layer '{first.layer}' ({first.type}): {first}."
        equal = sum(row.verdict == "equal" for row in self.rows)
        if equal and all(None in row.shapes for row in self.parted):
            yield f"Of what both have nothing differs: {counted(equal, 'array')} equal."


def _as_json(row: Row) -> dict[str, Any]:
    found: dict[str, Any] = {name: getattr(row, name) for name in ("layer", "type", "kind", "name", "verdict")}
    found |= {"shape_a": row.shapes[0], "shape_b": row.shapes[1], "parts": row.counts}
    if (d := row.distance) is not None:
        numbers = {"error": d.error, "relative": d.relative, "scale": d.scale, "cosine": d.cosine}
        found |= {name: number if isfinite(number) else None for name, number in numbers.items()} | {"at": d.at}
    return found


def _shape(shape: tuple[int, ...] | None) -> str:
    return "absent" if shape is None else "x".join(map(str, shape)) or "scalar"


def _table(texts: Sequence[tuple[str, ...]]) -> Iterator[str]:
    rows = [tuple(map(printable, row)) for row in texts]  # names come from files
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = [c.rjust(w) if 4 <= i < 7 else c.ljust(w) for i, (c, w) in enumerate(zip(row, widths, strict=True))]
        yield "  ".join(cells).rstrip()
