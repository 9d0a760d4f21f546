"""What a gradient check found: one row for each array that a gradient was taken with respect to."""

from __future__ import annotations

import json
from dataclasses import dataclass
from math import isfinite
from typing import Any, NamedTuple

from ..tables import aligned

OK = "ok"
DECLARED = "ok: not the derivative, as declared"


class Worst(NamedTuple):
    """The largest relative error (see `gradcheck.verdict`), and its index; None if nothing was compared."""

    error: float
    at: tuple[int, ...] | None

    def __str__(self) -> str:
        return f"{self.error:.1e}" + (f" at {list(self.at)}" if self.at else "")


@dataclass(frozen=True)
class Row:
    """One bottom or blob of one layer.

    Attributes:
        layer: the layer's key in its graph.
        type: its type.
        argument: `bottom 0 (data)` or `blob 1`.
        rule_autodiff: hand-written rule against autodiff, over all elements; None without one of them.
        rule_differences: the rule against finite differences, over the elements checked; None without a rule, but zeros
            stand for that of a layer on the host.
        autodiff_differences: autodiff against finite differences, likewise; None for layers on the host.
        size: number of elements.
        checked: elements with a finite difference.
        skipped: elements that were tried and lie too near a kink for one.
        zero: whether all that there is says that the gradient is zero everywhere, so that little was seen.
        verdict: "ok", or what is wrong.
    """

    layer: str
    type: str
    argument: str
    rule_autodiff: Worst | None
    rule_differences: Worst | None
    autodiff_differences: Worst | None
    size: int
    checked: int
    skipped: int
    zero: bool
    verdict: str

    @property
    def ok(self) -> bool:
        """Whether the derivations agree."""
        return self.verdict in (OK, DECLARED)

    @property
    def _compared(self) -> list[Worst]:
        """The comparisons that count: with the rule, if there is one."""
        with_rule = [w for w in (self.rule_autodiff, self.rule_differences) if w is not None]
        return with_rule or [w for w in (self.autodiff_differences,) if w is not None]

    def __str__(self) -> str:
        worst = max(self._compared, key=lambda w: w.error)
        return f"gradient of {self.argument}: {self.verdict}; worst relative error {worst}"


@dataclass(frozen=True)
class Report:
    """The rows of all layers checked, in the order of execution. `str(report)` is a table."""

    rows: tuple[Row, ...]

    @property
    def ok(self) -> bool:
        """Whether every row is; False if there are none."""
        return bool(self.rows) and all(row.ok for row in self.rows)

    @property
    def failures(self) -> tuple[Row, ...]:
        """The rows that are not ok."""
        return tuple(row for row in self.rows if not row.ok)

    def to_json(self) -> str:
        """Write `{"ok": ..., "rows": [{...}]}`; rows have the attributes of `Row`, infinite errors are "inf"."""
        return json.dumps({"ok": self.ok, "rows": [_plain(row) for row in self.rows]}, indent=1)

    def __str__(self) -> str:
        titles = ("layer", "type", "argument", "rule/autodiff", "rule/differences", "checked", "verdict")
        return "\n".join(aligned([titles, *(_cells(row) for row in self.rows)], len(titles)))


def _cells(row: Row) -> tuple[str, ...]:
    # without a rule, what can be compared is autodiff
    against = row.rule_differences or f"{row.autodiff_differences} (autodiff)"
    skipped = f", {row.skipped} skipped" if row.skipped else ""
    return (
        row.layer,
        row.type,
        row.argument,
        str(row.rule_autodiff or ("no rule" if row.rule_differences is None else "no autodiff")),
        str(against),
        f"{row.checked}/{row.size}{skipped}",
        row.verdict + (" (zero)" if row.zero else ""),
    )


def _plain(row: Row) -> dict[str, Any]:
    """Return a row as plain values; JSON has no infinite numbers."""
    return {
        "ok": row.ok,
        **{key: _worst(value) if isinstance(value, Worst) else value for key, value in vars(row).items()},
    }


def _worst(worst: Worst) -> dict[str, Any]:
    return {"error": worst.error if isfinite(worst.error) else "inf", "at": worst.at}
