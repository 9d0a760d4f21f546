"""Checks of the arguments of pycaffe's calls. Each returns the argument, or raises an error that names it.

The errors are `CaffejaxError`s that are also a TypeError, ValueError, IndexError or KeyError.
"""

from __future__ import annotations

import operator
import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

import numpy as np

from ..base.config import NetConfig
from ..base.errors import (
    ArgumentTypeError,
    ArgumentValueError,
    OutOfRangeError,
    UnknownNameError,
    describe_type,
    did_you_mean,
)

T = TypeVar("T")


def as_path(value: Any, name: str) -> str | os.PathLike[str]:
    """Return a path, which must be a str or a path object."""
    if isinstance(value, str) or (isinstance(value, os.PathLike) and isinstance(os.fspath(value), str)):
        return value
    raise ArgumentTypeError(f"{name} must be the path of a file, a str, not {describe_type(value)}")


def as_integer(value: Any, name: str) -> int:
    """Return an integer."""
    try:
        return operator.index(value)
    except TypeError:
        raise ArgumentTypeError(f"{name} must be an integer, not {_describe(value)}") from None


def as_index(value: Any, name: str, length: int) -> int:
    """Return an index, 0 to `length - 1`. As in Caffe, negative numbers do not count from the end."""
    index = as_integer(value, name)
    if not 0 <= index < length:
        raise OutOfRangeError(f"{name} must be 0 to {length - 1}, not {index}")
    return index


def as_number(value: Any, name: str) -> float:
    """Return a number."""
    array = as_array(value, name, np.float64)
    if array.size != 1:
        raise ArgumentTypeError(f"{name} must be a number, not {_describe(value)}")
    return float(array.reshape(()))


def as_name(value: Any, noun: str, known_names: Iterable[str]) -> str:
    """Return the name of a `noun`, such as "layer", which must be one of `known_names`."""
    if not isinstance(value, str):
        raise ArgumentTypeError(f"the name of a {noun} must be a str, not {_describe(value)}")
    names = list(known_names)
    if value not in names:
        raise UnknownNameError(f"no {noun} '{value}' in the net{did_you_mean(value, names)}")
    return value


def as_names(value: Any, noun: str, known_names: Iterable[str]) -> list[str]:
    """Return a list of names of a `noun`; None stands for an empty list."""
    if value is None:
        return []
    if isinstance(value, str | bytes) or not isinstance(value, Iterable):
        example = next(iter(known_names), "name")
        raise ArgumentTypeError(f"the names of {noun}s must be a list, such as ['{example}'], not {_describe(value)}")
    return [as_name(name, noun, known_names) for name in value]


def as_array(value: Any, name: str, dtype: Any = np.float32, ndim: int | None = None) -> np.ndarray:
    """Return an array of numbers, with `ndim` axes if it is given."""
    try:
        array = np.asarray(value)
        if array.dtype.kind not in "biuf":
            raise TypeError
        array = np.asarray(array, dtype)
    except (TypeError, ValueError):
        raise ArgumentTypeError(f"{name} must be an array of numbers, not {_describe(value)}") from None
    if ndim is not None and array.ndim != ndim:
        raise ArgumentValueError(f"{name} must have {ndim} axes, not shape {array.shape}")
    return array


def as_image(value: Any, name: str = "an image") -> np.ndarray:
    """Return an image (height, width, channels), whose dtype is kept."""
    array = as_array(value, name, dtype=None)
    if array.ndim != 3 or 0 in array.shape:
        raise ArgumentValueError(f"{name} must have shape (height, width, channels), not {array.shape}")
    return array


def as_list(value: Any, name: str) -> list[Any]:
    """Return the items of a list or a different iterable that is neither a str nor a mapping."""
    if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
        raise ArgumentTypeError(f"{name} must be a list, not {_describe(value)}")
    return list(value)


def as_callable(value: T, name: str) -> T:
    """Return a function."""
    if not callable(value):
        raise ArgumentTypeError(f"{name} must be a function, not {_describe(value)}")
    return value


def as_instance(value: Any, cls: type[T], name: str) -> T:
    """Return an instance of a class."""
    if not isinstance(value, cls):
        raise ArgumentTypeError(f"{name} must be a {cls.__name__}, not {_describe(value)}")
    return value


def as_message(message: Any, name: str) -> Any:
    """Return a protobuf message, which must have a type of this name. It may be of a class of another schema."""
    if getattr(getattr(message, "DESCRIPTOR", None), "name", None) != name:
        raise ArgumentTypeError(f"the argument must be a {name}, not {_describe(message)}")
    return message


def as_dims(value: Any, name: str) -> tuple[int, int]:
    """Return a height and a width, which must be positive."""
    try:
        height, width = (int(n) for n in value)
    except (TypeError, ValueError):
        height = width = 0
    if height <= 0 or width <= 0:
        raise ArgumentValueError(f"{name} must be a height and a width, such as (227, 227), not {_describe(value)}")
    if height * width > NetConfig.max_image_pixels:
        message = f"{height} x {width} pixels are more than the limit of {NetConfig.max_image_pixels}"
        raise ArgumentValueError(f"{name}: {message}")
    return height, width


def convert(value: Any, name: str, expected: str, function: Callable[[Any], T]) -> T:
    """Return `function(value)`; if it raises a TypeError, ValueError or the like, say what was expected."""
    try:
        return function(value)
    except (TypeError, ValueError, AttributeError, KeyError, IndexError) as error:
        raise ArgumentTypeError(f"{name} must be {expected}, not {_describe(value)}: {error}") from error


def _describe(value: Any) -> str:
    if value is None or not isinstance(value, str | bytes | int | float | list | tuple | np.ndarray):
        return describe_type(value)
    if isinstance(value, np.ndarray):
        return f"an array of shape {value.shape} and dtype {value.dtype}"
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
