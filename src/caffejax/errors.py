"""Errors that say where (file, line, layer), what (values, shapes) and what to do.

Everything that reads input collects a list of `Problem` and raises them together, so that a user mends a
file once and not once per mistake. The command line prints them and exits with 1; nobody sees a traceback
for a mistake in a file.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from numbers import Integral
from typing import Any, TypeGuard

# characters, so that no file makes a message endless, and each message still says where
_LONGEST = 10_000  # of what is wrong
_LONGEST_FILE = 5_000  # systems open paths of 4,096 at most
_LONGEST_NAME = 300
_MOST = 1_000  # problems that an error's text lists


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong, and where.

    Attributes:
        message: what is wrong and, where there is one, the remedy.
        file: the file it stands in.
        line: 1-based line in that file.
        column: 1-based column in that line.
        layer: name of the layer concerned.
        layer_type: type of that layer.
    """

    message: str
    file: str | None = None
    line: int | None = None
    column: int | None = None
    layer: str | None = None
    layer_type: str | None = None

    def __str__(self) -> str:
        file = None if self.file is None else _cut(self.file, _LONGEST_FILE)
        place = ":".join(str(part) for part in (file, self.line, self.column) if part is not None)
        kind = f" ({_cut(self.layer_type, _LONGEST_NAME)})" if self.layer_type else ""
        layer = f"layer '{_cut(self.layer, _LONGEST_NAME)}'{kind}" if self.layer is not None else ""
        return _fit_to_print(": ".join(part for part in (place, layer, _cut(self.message, _LONGEST)) if part))


def _cut(text: str, longest: int) -> str:
    """Leave out the middle of what a file makes endless."""
    return text if len(text) <= longest else f"{text[: longest // 2]} ... {text[-longest // 4 :]}"


def _fit_to_print(text: str) -> str:
    """Escape what would steer a terminal or not print."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode() for c in text)


class CaffejaxError(RuntimeError):
    """Any mistake in what the user gave: files, settings, shapes.

    `str(error)` is the message for the user, one line for each of the first 1,000 problems. A RuntimeError, as Caffe's
    own errors in Python.
    """

    def __init__(self, problems: str | Problem | Iterable[str | Problem]) -> None:
        if isinstance(problems, str | Problem):
            problems = [problems]
        self.problems: tuple[Problem, ...] = tuple(Problem(p) if isinstance(p, str) else p for p in problems)
        lines = [str(p) for p in self.problems[:_MOST]]
        if (more := len(self.problems) - _MOST) > 0:
            lines.append(f"and {more} more problems")
        super().__init__("\n".join(lines))

    def __reduce__(self) -> tuple[type[CaffejaxError], tuple[tuple[Problem, ...]]]:
        return type(self), (self.problems,)  # so that it comes whole out of a worker process


class SchemaError(CaffejaxError):
    """A prototxt or binary proto file that cannot be read: syntax, unknown fields, wrong values."""


class GraphError(CaffejaxError):
    """A net that cannot be built: unknown layer types, blobs that do not exist, shapes that do not fit."""


class LayerError(CaffejaxError):
    """A layer's own complaint about its parameters or the shapes of its bottoms."""


class WeightsError(CaffejaxError):
    """Weights or a checkpoint that cannot be read, written, or do not fit the net."""


class SolverError(CaffejaxError):
    """Solver settings that make no sense together."""


class DataError(CaffejaxError):
    """A data source that is missing, empty, corrupt, or not of the declared form."""


@contextmanager
def located(**where: str | int | None) -> Iterator[None]:
    """Fill in where an error comes from: the fields that a `Problem` raised inside left empty."""
    try:
        yield
    except CaffejaxError as error:
        raise type(error)(
            replace(p, **{k: v for k, v in where.items() if getattr(p, k) is None})  # type: ignore[arg-type]
            for p in error.problems
        ) from error.__cause__


def check_all(*checks: Callable[[], object]) -> None:
    """Make several checks; raise what all of them find wrong as one error, of the first one's type."""
    errors = []
    for check in checks:
        try:
            check()
        except CaffejaxError as error:
            errors.append(error)
    if errors:
        raise type(errors[0])(problem for error in errors for problem in error.problems) from errors[0].__cause__


def raise_all(error: type[CaffejaxError], problems: Iterable[str | Problem], file: str | None = None) -> None:
    """Raise one error with all problems; do nothing if there is none.

    Args:
        error: the class of the error.
        problems: messages, or problems with a place.
        file: the file of problems that are messages; or None if they concern no file.
    """
    if listed := [Problem(p, file) if isinstance(p, str) else p for p in problems]:
        raise error(listed)


def is_integer(value: Any) -> TypeGuard[int]:
    """Return whether a value is an integer of Python or NumPy; booleans are not."""
    return isinstance(value, Integral) and not isinstance(value, bool)


def describe_type(value: Any) -> str:
    """Return "None" or "a value of type NAME", for messages about a value of a wrong type."""
    return "None" if value is None else f"a value of type {type(value).__name__}"


def shorten_list(names: Sequence[str], longest: int = 8) -> list[str]:
    """Return at most `longest` names of a list: if it is longer, its first ones, "..." and its last one."""
    return [*names[: longest - 2], "...", names[-1]] if len(names) > longest else list(names)


UNKNOWN_TYPE = "unknown layer type"  # how the message about one begins


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return `"; did you mean 'x'?"` for the known name nearest to `name`, or an empty string."""
    folded = {k.lower(): k for k in known}
    match = difflib.get_close_matches(name.lower(), folded, n=1, cutoff=0.6)
    return f"; did you mean '{folded[match[0]]}'?" if match else ""


def require(condition: object, message: str) -> None:
    """Raise `LayerError(message)` unless `condition` holds. For checks inside a layer's definition."""
    if not condition:
        raise LayerError(message)
