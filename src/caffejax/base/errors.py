"""Exceptions whose messages state the location (file, line, layer), the problem (values, shapes) and the remedy.

A function that reads input collects a list of `Problem` and raises all of them together, so that users see every
mistake in a file at once. The command line prints the problems without a traceback, and exits with status 1.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import islice
from numbers import Integral
from typing import Any, TypeGuard

# limits in characters, so that text from a file cannot make a message arbitrarily long
_MAX_MESSAGE_LENGTH = 10_000
_MAX_PATH_LENGTH = 5_000  # operating systems open paths of at most 4,096 characters
_MAX_NAME_LENGTH = 300
_MAX_PROBLEMS = 1_000  # problems that an error's text lists
_MAX_KNOWN_NAMES = 10_000  # names that are compared with a wrong one


@dataclass(frozen=True)
class Problem:
    """One mistake and its location.

    Attributes:
        message: the mistake and, if there is one, the remedy.
        file: the file with the mistake.
        line: its line in the file, from 1.
        column: its column in the line, from 1.
        layer: the name of the layer with the mistake.
        layer_type: the type of the layer.
    """

    message: str
    file: str | None = None
    line: int | None = None
    column: int | None = None
    layer: str | None = None
    layer_type: str | None = None

    def __str__(self) -> str:
        file = None if self.file is None else _shorten(self.file, _MAX_PATH_LENGTH) or "''"
        location = ":".join(str(part) for part in (file, self.line, self.column) if part is not None)
        type_text = f" ({_shorten(self.layer_type, _MAX_NAME_LENGTH)})" if self.layer_type else ""
        layer_text = f"layer '{_shorten(self.layer, _MAX_NAME_LENGTH)}'{type_text}" if self.layer is not None else ""
        parts = location, layer_text, _shorten(self.message, _MAX_MESSAGE_LENGTH)
        text = ": ".join(part for part in parts if part)
        if text.isprintable():
            return text
        # terminal control codes, for example
        return "".join(c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode() for c in text)


def _shorten(text: str, max_length: int) -> str:
    """Remove the middle of a text that is longer than `max_length`, and keep about three quarters of this length."""
    return text if len(text) <= max_length else f"{text[: max_length // 2]} ... {text[-max_length // 4 :]}"


class CaffejaxError(RuntimeError):
    """An error in a user's input: a file, a setting or a shape.

    `str(error)` is the message for the user, with one line for each of the first 1,000 problems. Like the exceptions of
    pycaffe, the class derives from RuntimeError.

    Attributes:
        problems: all problems, in order.
    """

    def __init__(self, problems: str | Problem | Iterable[str | Problem]) -> None:
        if isinstance(problems, str | Problem):
            problems = [problems]
        self.problems: tuple[Problem, ...] = tuple(Problem(p) if isinstance(p, str) else p for p in problems)
        lines = [str(p) for p in self.problems[:_MAX_PROBLEMS]]
        if (num_omitted := len(self.problems) - _MAX_PROBLEMS) > 0:
            lines.append(f"and {num_omitted} more problems")
        super().__init__("\n".join(lines))

    def __reduce__(self) -> tuple[type[CaffejaxError], tuple[tuple[Problem, ...]]]:
        return type(self), (self.problems,)  # pickled with its problems when a worker process raises it


class SchemaError(CaffejaxError):
    """A prototxt or binary proto file that cannot be read: syntax, unknown fields, wrong values."""


class GraphError(CaffejaxError):
    """A net that cannot be built: unknown layer types, blobs that do not exist, shapes that do not fit."""


class LayerError(CaffejaxError):
    """A mistake that a layer finds in its settings or in the shapes of its bottoms."""


class WeightsError(CaffejaxError):
    """Weights or a checkpoint that cannot be read or written, or that do not fit the net."""


class SolverError(CaffejaxError):
    """Solver settings that contradict each other or have invalid values."""


class DataError(CaffejaxError):
    """A data source that is missing, empty or corrupt, or does not have the declared form."""


class ArgumentTypeError(CaffejaxError, TypeError):
    """An argument of a wrong type, in functions whose callers may expect a TypeError."""


class ArgumentValueError(CaffejaxError, ValueError):
    """An argument with an invalid value or shape, in functions whose callers may expect a ValueError."""


class OutOfRangeError(CaffejaxError, IndexError):
    """An index out of range, in functions whose callers may expect an IndexError."""


class UnknownNameError(GraphError, KeyError, ValueError):
    """A name that a net does not have, in functions whose callers may expect a KeyError or a ValueError."""

    __str__ = Exception.__str__  # a KeyError would print the repr of the message


class UnknownAttributeError(CaffejaxError, AttributeError):
    """An attribute that an object does not have, and a remedy."""


class ReadOnlyError(CaffejaxError, AttributeError, TypeError):
    """An assignment to an attribute or an item that cannot be assigned to, because it would have no effect."""


@contextmanager
def locate_errors(**location: str | int | None) -> Iterator[None]:
    """Add a location to the errors that are raised in a `with` block. Fields that are already set stay unchanged.

    Other exceptions get a note that names the layer.

    Args:
        location: values for fields of `Problem`, such as `file="net.prototxt"`.
    """
    try:
        yield
    except CaffejaxError as error:
        raise type(error)(
            replace(p, **{k: v for k, v in location.items() if getattr(p, k) is None})  # type: ignore[arg-type]
            for p in error.problems
        ) from error.__cause__
    except Exception as error:
        prefix, layer = "in layer ", location.get("layer")
        if layer is not None and not any(note.startswith(prefix) for note in getattr(error, "__notes__", ())):
            error.add_note(f"{prefix}'{layer}' ({location.get('layer_type')})")
        raise


def check_all(*checks: Callable[[], object]) -> None:
    """Call several functions. If some raise errors, raise one error of the first error's class, with all problems."""
    errors = []
    for check in checks:
        try:
            check()
        except CaffejaxError as error:
            errors.append(error)
    if errors:
        raise type(errors[0])(problem for error in errors for problem in error.problems) from errors[0].__cause__


def raise_if_any(error: type[CaffejaxError], problems: Iterable[str | Problem], file: str | None = None) -> None:
    """Raise one error with all problems, or do nothing without problems.

    Args:
        error: the class of the error.
        problems: messages, or problems with a location.
        file: the file that the messages are about, or None. Problems with a location already have a file.
    """
    if located_problems := [Problem(p, file) if isinstance(p, str) else p for p in problems]:
        raise error(located_problems)


def is_integer(value: Any) -> TypeGuard[int]:
    """Return whether a value is a Python or NumPy integer. Booleans are not integers here."""
    return isinstance(value, Integral) and not isinstance(value, bool)


def describe_type(value: Any) -> str:
    """Return "None" or "a value of type NAME", for messages about values of wrong types."""
    return "None" if value is None else f"a value of type {type(value).__name__}"


def shorten_list(names: Sequence[str], max_length: int = 8) -> list[str]:
    """Shorten a list to at most `max_length` items: the first names, "..." and the last name."""
    return [*names[: max_length - 2], "...", names[-1]] if len(names) > max_length else list(names)


UNKNOWN_TYPE = "unknown layer type"  # the beginning of the message about a layer of such a type


def did_you_mean(name: str, known_names: Iterable[str]) -> str:
    """Return `"; did you mean 'x'?"` with the known name that is most similar to `name`, or "" if none is similar.

    The first known name of the form `name_...` counts as the most similar, such as kernel_size for kernel.
    """
    names_by_lowercase = {k.lower(): k for k in islice(known_names, _MAX_KNOWN_NAMES)}
    extensions = (k for k in names_by_lowercase if k.startswith(f"{name.lower()}_"))
    match = next(extensions, None) or _find_similar(name.lower(), names_by_lowercase)
    return f"; did you mean '{names_by_lowercase[match]}'?" if match else ""


def _find_similar(name: str, names: Iterable[str]) -> str | None:
    """Return the most similar name. The ending "_param", which most messages have, makes names no more similar."""
    ending = "_param" if name.endswith("_param") else ""
    stems = {n.removesuffix(ending): n for n in names if n.endswith(ending)}
    stem = difflib.get_close_matches(name.removesuffix(ending), stems, n=1, cutoff=0.61)  # "swiglu" is not "selu"
    return stems[stem[0]] if stem else None


def require(condition: object, message: str) -> None:
    """Raise `LayerError(message)` if `condition` is false. Definitions of layers use this function for their checks."""
    if not condition:
        raise LayerError(message)
