"""The result of a comparison of dumps, with one row per array, as a table, JSON or a plot."""

from __future__ import annotations

import json
import math
import os
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from ....base.atomic_write import replace_file
from ....base.errors import CaffejaxError
from ....base.human_readable import format_count
from ....base.text_table import escape_unprintable
from ....core.schema.blob_proto import Array

Kind = Literal["input", "param", "top", "grad", "diff"]
Verdict = Literal["equal", "differs", "shapes", "only in A", "only in B", "random", "layers"]

_KIND_NAMES = {"input": "input", "param": "param", "top": "top", "grad": "gradient of param", "diff": "diff of"}
_COLUMN_TITLES = ("layer", "type", "what", "shape", "max error", "relative", "cosine", "verdict")


class Distance(NamedTuple):
    """The difference of two arrays with the same shape.

    Attributes:
        error: the largest absolute difference. It is infinite if only one of two values is NaN, or if infinities
            differ.
        position: the index of the largest difference, or None for equal or empty arrays.
        values: the two values at this index.
        scale: the largest finite absolute value in either array.
        cosine: the cosine of the angle between the arrays as vectors. It is 1 if both are zero, and NaN if only one is
            zero.
    """

    error: float
    position: tuple[int, ...] | None
    values: tuple[float, float]
    scale: float
    cosine: float

    @property
    def relative(self) -> float:
        """The error divided by the scale, or infinity if the error is infinite and the scale is 0."""
        if not self.error:
            return 0.0
        return self.error / self.scale if self.scale else math.inf


def compute_distance(a: Array, b: Array) -> Distance:
    """Return the difference of two arrays of the same shape. NaN equals NaN, and equal infinities differ by 0."""
    x, y = (np.asarray(array, np.float64).ravel() for array in (a, b))
    is_finite = np.isfinite(x) & np.isfinite(y)
    is_comparable = is_finite | (x == y) | (np.isnan(x) & np.isnan(y))
    with np.errstate(invalid="ignore", over="ignore"):
        errors = np.where(is_finite, np.abs(x - y), np.where(is_comparable, 0.0, np.inf))
    finite_x, finite_y = (np.where(is_finite, v, 0.0) for v in (x, y))
    scales = [float(np.abs(v[np.isfinite(v)]).max(initial=0)) for v in (x, y)]
    if not errors.any():
        return Distance(0.0, None, (0.0, 0.0), max(scales), _compute_cosine(finite_x, finite_y))
    flat_index = int(errors.argmax())
    index = tuple(int(i) for i in np.unravel_index(flat_index, a.shape))
    values = float(x[flat_index]), float(y[flat_index])
    return Distance(float(errors[flat_index]), index, values, max(scales), _compute_cosine(finite_x, finite_y))


def _compute_cosine(x: Array, y: Array) -> float:
    x, y = (v / (np.abs(v).max(initial=0) or 1) for v in (x, y))  # the squares of large float64 values overflow
    norms = float(np.linalg.norm(x)), float(np.linalg.norm(y))
    if not all(norms):
        return float("nan") if any(norms) else 1.0
    return float(np.clip(np.dot(x / norms[0], y / norms[1]), -1, 1))


@dataclass(frozen=True)
class Row:
    """One array of one layer, in both dumps.

    Attributes:
        layer: the layer that computed the array. Diffs and gradients are computed in its backward pass.
        type: the layer's type.
        kind: "input", "param", "top", "grad" or "diff".
        name: the blob's name or the parameter's number. If the verdict is "layers", a description of the difference.
        shapes: the shapes in A and in B, or None for a dump without the array.
        distance: the difference of the values, or None if they cannot be compared.
        verdict: "equal"; "differs" if the difference exceeds the tolerances; "shapes" if the shapes differ; "only in A"
            or "only in B"; "random" if the values depend on random numbers; "layers" if the layers of the two nets
            differ.
        is_difference: True if this row counts as a difference of the dumps.
    """

    layer: str
    type: str
    kind: Kind
    name: str
    shapes: tuple[tuple[int, ...] | None, tuple[int, ...] | None]
    distance: Distance | None
    verdict: Verdict
    is_difference: bool

    @property
    def description(self) -> str:
        """The kind and name of the array, as text for tables."""
        return self.name if self.verdict == "layers" else f"{_KIND_NAMES[self.kind]} {self.name}"

    def __str__(self) -> str:
        if self.verdict == "shapes":
            a, b = map(_format_shape, self.shapes)
            return f"{self.description} has shape {a} in A and {b} in B"
        if self.distance is None:
            return self.description if self.verdict == "layers" else f"{self.description} is {self.verdict}"
        d = self.distance
        values = f"at {list(d.position or ())}: {d.values[0]:.7g} in A, {d.values[1]:.7g} in B"
        return f"{self.description} is off by {d.error:.3g}, {d.relative:.2g} of its scale {values}"

    def cells(self) -> tuple[str, ...]:
        """Return the cells of the row in the table: layer, type, array, shape, errors, cosine and verdict."""
        a, b = self.shapes
        shape = (
            _format_shape(a if a is not None else b)
            if None in self.shapes or a == b
            else f"{_format_shape(a)} / {_format_shape(b)}"
        )
        numbers: tuple[str, ...] = ("", "", "")
        if (d := self.distance) is not None:
            numbers = f"{d.error:.2e}", f"{d.relative:.2e}", f"{d.cosine:.6f}"
        return (
            self.layer,
            self.type,
            self.description,
            shape,
            *numbers,
            self.verdict.upper() if self.is_difference else self.verdict,
        )


@dataclass(frozen=True)
class Comparison:
    """The comparison of two dumps. `str(comparison)` is a table that names the first difference.

    Attributes:
        rows: one row per array, in the order of computation.
        a, b: the files of the dumps, or the programs that created them.
        rtol, atol: the tolerances; see `compare_dumps`.
        net_mismatch: a message if the dumps are of different nets, otherwise "".
    """

    rows: tuple[Row, ...]
    a: str
    b: str
    rtol: float
    atol: float
    net_mismatch: str = ""

    @property
    def differences(self) -> tuple[Row, ...]:
        """The rows that count as differences."""
        return tuple(row for row in self.rows if row.is_difference)

    @property
    def first_difference(self) -> Row | None:
        """The first difference, or None if all is equal."""
        return next(iter(self.differences), None)

    @property
    def ok(self) -> bool:
        """True if at least one array was compared and no row counts as a difference."""
        return not self.differences and any(row.verdict == "equal" for row in self.rows)

    def to_json(self) -> str:
        """Return the comparison as JSON text. NaN and infinity are null."""
        report: dict[str, Any] = {"a": self.a, "b": self.b, "rtol": self.rtol, "atol": self.atol, "ok": self.ok}
        report["first"] = None if self.first_difference is None else self.rows.index(self.first_difference)
        report["rows"] = [_as_json(row) for row in self.rows]
        return json.dumps(report, indent=1)

    def __str__(self) -> str:
        # params and inputs are shown only if they differ
        rows = [r for r in self.rows if r.kind not in ("param", "input") or r.verdict != "equal"]
        num_hidden = len(self.rows) - len(rows)
        lines = [
            escape_unprintable(f"A: {self.a}"),
            escape_unprintable(f"B: {self.b}"),
            "",
            *_format_table([_COLUMN_TITLES, *(row.cells() for row in rows)]),
            "",
        ]
        if num_hidden:
            lines.append(f"Equal params and inputs: {num_hidden}.")
        return "\n".join([*lines, *map(escape_unprintable, self._summary())])

    def _summary(self) -> Iterator[str]:
        tolerances = f"rtol {self.rtol:g}, atol {self.atol:g}"
        for verdict, text in (
            ("random", "with random numbers, not counted (--random counts them)"),
            ("only in A", "in A only"),
            ("only in B", "in B only"),
        ):
            if n := sum(row.verdict == verdict and not row.is_difference for row in self.rows):
                yield f"{format_count(n, 'array')} {text}."
        if self.net_mismatch:
            yield f"{self.net_mismatch[0].upper()}{self.net_mismatch[1:]}."
        if (first_difference := self.first_difference) is None:
            n = sum(row.verdict == "equal" for row in self.rows)
            yield f"All {n} arrays in both dumps are equal ({tolerances})." if n else "There was nothing to compare."
            if num_zero_tops := sum(
                r.kind == "top" and r.distance is not None and r.distance.scale == 0 for r in self.rows
            ):
                zero_tops = format_count(num_zero_tops, "top")
                yield f"{zero_tops} of these prove nothing, because all values are 0 in both dumps."
            return
        yield f"{len(self.differences)} of {len(self.rows)} arrays differ ({tolerances})."
        yield f"They first differ in layer '{first_difference.layer}' ({first_difference.type}): {first_difference}."
        num_equal = sum(row.verdict == "equal" for row in self.rows)
        if num_equal and all(None in row.shapes for row in self.differences):
            yield f"All {num_equal} arrays that are in both dumps are equal."


def _as_json(row: Row) -> dict[str, Any]:
    cells: dict[str, Any] = {name: getattr(row, name) for name in ("layer", "type", "kind", "name", "verdict")}
    cells |= {"shape_a": row.shapes[0], "shape_b": row.shapes[1], "differs": row.is_difference}
    if (d := row.distance) is not None:
        numbers = {"error": d.error, "relative": d.relative, "scale": d.scale, "cosine": d.cosine}
        cells |= {name: number if math.isfinite(number) else None for name, number in numbers.items()} | {
            "at": d.position
        }
    return cells


def _format_shape(shape: tuple[int, ...] | None) -> str:
    return "absent" if shape is None else "x".join(map(str, shape)) or "scalar"


def _format_table(texts: Sequence[tuple[str, ...]]) -> Iterator[str]:
    rows = [tuple(map(escape_unprintable, row)) for row in texts]  # names from files may contain control characters
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = [c.rjust(w) if 4 <= i < 7 else c.ljust(w) for i, (c, w) in enumerate(zip(row, widths, strict=True))]
        yield "  ".join(cells).rstrip()


_CURVE_LABELS: dict[Kind, str] = {"top": "tops, forward", "diff": "diffs, backward", "grad": "gradients of params"}
_MIN_PLOTTED_ERROR = 1e-9  # the smallest error in plots, to which smaller errors are raised


def draw_errors(comparison: Comparison, path: str | os.PathLike[str]) -> None:
    """Plot the relative error of every array by layer. The file extension determines the format.

    Arrays that depend on random numbers are omitted.

    Raises:
        CaffejaxError: if matplotlib is not installed, or the file cannot be written.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise CaffejaxError("pictures need matplotlib: pip install matplotlib") from error
    positions = {name: i for i, name in enumerate(dict.fromkeys(row.layer for row in comparison.rows))}
    figure = Figure(figsize=(max(6.4, min(20.0, 0.14 * len(positions) + 3)), 5), layout="constrained")
    axes = figure.add_subplot()
    for kind, label in _CURVE_LABELS.items():
        worst_errors: dict[str, float] = {}
        for row in comparison.rows:
            if row.kind == kind and row.distance is not None and row.verdict != "random":
                worst_errors[row.layer] = max(_clamp_error(row), worst_errors.get(row.layer, 0.0))
        if worst_errors:
            points = sorted((positions[name], error) for name, error in worst_errors.items())
            axes.plot(*zip(*points, strict=True), marker=".", label=label)
    if any(row.distance is not None and _clamp_error(row) == _MIN_PLOTTED_ERROR for row in comparison.rows):
        axes.axhline(
            _MIN_PLOTTED_ERROR, color="lightgrey", zorder=0, label=f"equal, or off by at most {_MIN_PLOTTED_ERROR:g}"
        )
    if comparison.rtol == 0:  # a logarithmic axis has no 0, and needs two values
        axes.update_datalim([(0, 1.0)])
    else:
        axes.axhline(comparison.rtol, color="grey", linestyle=":", label=f"rtol {comparison.rtol:g}")
    if (first_difference := comparison.first_difference) is not None:
        axes.axvline(
            positions[first_difference.layer],
            color="red",
            linestyle="--",
            label=f"first difference: {_escape_dollars(first_difference.layer)}",
        )
    axes.set_yscale("log")
    axes.set_ylabel("largest error, as a share of the array's scale")
    tick_step = -(-len(positions) // 120)
    ticks = [(i, name) for name, i in positions.items() if i % tick_step == 0]
    axes.set_xticks([i for i, _ in ticks], [_escape_dollars(name) for _, name in ticks], rotation=90, fontsize=6)
    axes.legend()
    picture = BytesIO()
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Glyph")  # a character in a name that the font does not have
            figure.savefig(picture, format=Path(path).suffix[1:] or None)
    except ValueError as error:
        raise CaffejaxError(f"{os.fspath(path)}: {error}") from error
    with replace_file(path) as file:
        file.write(picture.getvalue())


def _clamp_error(row: Row) -> float:
    assert row.distance is not None
    return min(max(row.distance.relative, _MIN_PLOTTED_ERROR), 1e3)


def _escape_dollars(name: str) -> str:
    """Return a name with `$` escaped, so that matplotlib does not parse it as a formula."""
    return name.replace("$", r"\$")
