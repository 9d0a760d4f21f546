"""The floats that a net computes in: a choice of the run, not of the model, as `kernels` is."""

from __future__ import annotations

from typing import Literal, get_args

from .errors import CaffejaxError

Precision = Literal["float32", "tf32", "bfloat16"]
CHOICES: tuple[Precision, ...] = get_args(Precision)


def check(precision: str) -> None:
    """Raises `CaffejaxError` unless there is such a precision."""
    if precision not in CHOICES:
        raise CaffejaxError(
            f"precision '{precision}' is not supported; use one of {', '.join(CHOICES)} (half precision is bfloat16, "
            "which needs no loss scaling)"
        )
