"""The report of a gradient check: a row for each bottom and param, with the errors and the verdict."""

from __future__ import annotations

import json
from dataclasses import dataclass
from math import isfinite
from typing import Any, NamedTuple

from ...base.text_table import align_columns
from ..graph import Layer

OK = "ok"
OK_DECLARED = "ok: not the derivative, as declared"
OK_STOPPED = "ok (no gradient, as declared)"
OK_INDICES = "ok (no gradient: labels and indices)"


class WorstError(NamedTuple):
    """The largest relative error between two gradients, and its index.

    Attributes:
        error: the relative error; see `gradcheck.check_gradients`.
        indices: the index of the element, or None if no elements were compared.
    """

    error: float
    indices: tuple[int, ...] | None

    def __str__(self) -> str:
        return f"{self.error:.1e}" + (f" at {list(self.indices)}" if self.indices else "")


@dataclass(frozen=True)
class Row:
    """The comparison of the gradients with respect to one bottom or blob of a layer.

    A trait of the layer's type that is untrue has a row, too, without gradients.

    Attributes:
        layer: the layer's key in its graph.
        type: the layer's type.
        argument: the bottom, such as "bottom 0 (data)", the param, such as "weight", or "blob 0" if it has no name, or
            the trait, such as "trait row_wise".
        rule_autodiff: the error between the hand-written rule and autodiff over all elements, or None if there is no
            rule or no autodiff.
        rule_differences: the error between the rule and finite differences over the checked elements, or None if there
            is no rule. For a layer on the host without a rule, a gradient of zeros replaces the rule.
        autodiff_differences: the error between autodiff and finite differences over the checked elements, or None if
            the layer runs on the host.
        size: the number of elements.
        checked: the number of elements with a finite difference.
        skipped: the number of sampled elements that are too near a kink for a finite difference.
        zero: whether all elements of all gradients are zero. The row is then only ok if the layer's gradient is zero at
            random arrays, too, or if the layer runs on the host.
        verdict: "ok", or a description of the problem.
    """

    layer: str
    type: str
    argument: str
    rule_autodiff: WorstError | None
    rule_differences: WorstError | None
    autodiff_differences: WorstError | None
    size: int
    checked: int
    skipped: int
    zero: bool
    verdict: str

    @property
    def ok(self) -> bool:
        """True if the gradients agree, or need not, as the type declares or the net does not use them."""
        return self.verdict in (OK, OK_DECLARED, OK_STOPPED, OK_INDICES)

    @property
    def _decisive_errors(self) -> list[WorstError]:
        """The errors that decide the verdict: the errors of the rule or, if there is no rule, the error of autodiff."""
        rule_errors = [w for w in (self.rule_autodiff, self.rule_differences) if w is not None]
        return rule_errors or [w for w in (self.autodiff_differences,) if w is not None]

    def __str__(self) -> str:
        if not self._decisive_errors:
            return f"{self.argument}: {self.verdict}"
        worst = max(self._decisive_errors, key=lambda w: w.error)
        return f"gradient of {self.argument}: {self.verdict}; worst relative error {worst}"


@dataclass(frozen=True)
class Report:
    """The comparisons of all checked layers in the order of execution. `str(report)` is a table.

    Attributes:
        rows: a row for each bottom and learnable param, and for each trait that is untrue.
        notes: sentences about what the check cannot see, or what to do about a row; the table ends with them.
    """

    rows: tuple[Row, ...]
    notes: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """True if all rows are ok and there is at least one row."""
        return bool(self.rows) and all(row.ok for row in self.rows)

    @property
    def failures(self) -> tuple[Row, ...]:
        """The rows that are not ok."""
        return tuple(row for row in self.rows if not row.ok)

    def to_json(self) -> str:
        """Return the JSON text `{"ok": ..., "rows": [{...}], "notes": [...]}`.

        Each row has the attributes of a `Row`. An infinite error is the string "inf".
        """
        rows: list[dict[str, Any]] = []
        for row in self.rows:
            cells = {"ok": row.ok, **vars(row)}
            for key, value in vars(row).items():
                if isinstance(value, WorstError):
                    cells[key] = {"error": value.error if isfinite(value.error) else "inf", "at": value.indices}
            rows.append(cells)
        return json.dumps({"ok": self.ok, "rows": rows, "notes": self.notes}, indent=1)

    def __str__(self) -> str:
        titles = ("layer", "type", "argument", "rule/autodiff", "rule/differences", "checked", "verdict")
        table = align_columns([titles, *(_format_cells(row) for row in self.rows)], len(titles))
        return "\n".join([*table, *self.notes])


def _format_cells(row: Row) -> tuple[str, ...]:
    rule, differences, checked, verdict = "-", "-", f"{row.checked}/{row.size}", row.verdict
    if row._decisive_errors:
        rule = str(row.rule_autodiff or ("no rule" if row.rule_differences is None else "no autodiff"))
        # without a rule, autodiff is compared with finite differences
        differences = str(row.rule_differences or f"{row.autodiff_differences} (autodiff)")
    if row.skipped:
        checked += f", {row.skipped} skipped"
    if row.zero and row.verdict in (OK, OK_DECLARED):
        verdict += " (zero)" if row.autodiff_differences is None else " (always zero)"
    return (row.layer, row.type, row.argument, rule, differences, checked, verdict)


def make_row(layer: Layer, argument: str, verdict: str, size: int = 0) -> Row:
    """Return a row without gradients."""
    return Row(layer.key, layer.type.name, argument, None, None, None, size, 0, 0, False, verdict)
