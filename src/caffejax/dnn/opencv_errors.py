"""Errors of this package: `CaffejaxError`, also for arguments of wrong types, and after `install` also `cv2.error`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar, cast

from ..base.errors import CaffejaxError

F = TypeVar("F", bound=Callable[..., Any])
C = TypeVar("C", bound=type)

_ARGUMENT_ERRORS = (TypeError, ValueError, LookupError, ArithmeticError, AttributeError)

_opencv_errors: list[type[Exception]] = []  # cv2.error after `install`
_combined_classes: dict[type[CaffejaxError], type[CaffejaxError]] = {}  # {class: the same, which is also cv2.error}


def add_opencv_error(error: type[Exception]) -> None:
    """Let the functions of this package raise errors that are also of this class."""
    _opencv_errors[:] = [error]


def raises_opencv_errors(function: F) -> F:
    """Wrap a function so that its errors are `CaffejaxError`, and after `install` also OpenCV's.

    Python's errors about arguments, such as a string instead of an array, are converted; OpenCV raises its own error
    for them, too.
    """

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            try:
                return function(*args, **kwargs)
            except _ARGUMENT_ERRORS as error:
                name = function.__qualname__.removesuffix(".__init__")
                raise CaffejaxError(f"{name}: {error or type(error).__name__}") from error
        except CaffejaxError as error:
            if not _opencv_errors or isinstance(error, _opencv_errors[0]):
                raise
            raise _combine_with_opencv(type(error))(error.problems).with_traceback(
                error.__traceback__
            ) from error.__cause__

    return cast(F, call)


def methods_raise_opencv_errors(cls: C) -> C:
    """Wrap the public methods and properties of a class like `raises_opencv_errors`, in place; return the class."""
    for name, member in list(vars(cls).items()):
        if isinstance(member, property):
            setter = member.fset and raises_opencv_errors(member.fset)
            setattr(cls, name, property(member.fget and raises_opencv_errors(member.fget), setter, doc=member.__doc__))
        elif callable(member) and (name == "__init__" or not name.startswith("_")):
            setattr(cls, name, raises_opencv_errors(member))
    return cls


def _combine_with_opencv(error_class: type[CaffejaxError]) -> type[CaffejaxError]:
    def reduce(error: CaffejaxError) -> Any:  # pickled as the class in caffejax, because pickle finds no other
        return error_class, (error.problems,)

    if error_class not in _combined_classes:
        bases, methods = (error_class, *_opencv_errors), {"__module__": error_class.__module__, "__reduce__": reduce}
        _combined_classes[error_class] = type(error_class.__name__, bases, methods)
    return _combined_classes[error_class]
