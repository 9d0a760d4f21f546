"""The settings of caffe-faster-rcnn, a JSON file that its layers share."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ...base.errors import DataError, Problem, did_you_mean
from ...base.paths import read_bytes

_MAX_NUMBER = 1e9  # products of two numbers fit float32


class FrcnnConfig:
    """The settings in a file of caffe-faster-rcnn, whose values are texts of numbers that commas separate.

    Args:
        path: the JSON file.

    Raises:
        DataError: if the file cannot be read or has no JSON object.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._text = read_bytes(path, DataError, "the config").decode("utf-8", "replace")
        try:
            values = json.loads(self._text, strict=False)  # the fork's files have line ends in texts
        except (ValueError, RecursionError) as error:
            line = error.lineno if isinstance(error, json.JSONDecodeError) else None
            reason = getattr(error, "msg", "too many brackets, or a number of thousands of digits")
            raise DataError(Problem(f"is not JSON: {reason}", str(path), line)) from error
        if not isinstance(values, dict):
            raise DataError(Problem('is not a JSON object, such as {"scales": "600", ...}', str(path)))
        self._values: dict[str, Any] = values

    def numbers(self, name: str, count: int | None = None, default: tuple[float, ...] | None = None) -> list[float]:
        """Return the numbers of a setting.

        Args:
            name: the setting.
            count: the number of numbers that it must have, or None for one or more.
            default: the numbers if the setting is missing, or None if it must not be.

        Raises:
            DataError: if the setting is missing, or has other values. The message names the line.
        """
        if name not in self._values:
            if default is not None:
                return list(default)
            raise DataError(Problem(f"has no setting '{name}'{did_you_mean(name, self._values)}", str(self._path)))
        try:
            numbers = [float(text) for text in str(self._values[name]).split(",")]
        except ValueError:
            numbers = []
        if not (numbers and all(abs(x) <= _MAX_NUMBER for x in numbers) and len(numbers) == (count or len(numbers))):
            needed = (
                "numbers with commas between them" if count is None else f"{count} numbers" if count > 1 else "a number"
            )
            line = self._text.count("\n", 0, self._text.find(f'"{name}"')) + 1
            raise DataError(
                Problem(
                    f"{name} must be {needed}, not {self._values[name]!r} (at most {_MAX_NUMBER:g})",
                    str(self._path),
                    line,
                )
            )
        return numbers

    def number(self, name: str, default: float | None = None) -> float:
        """Return the number of a setting; see `numbers`."""
        return self.numbers(name, 1, None if default is None else (default,))[0]

    def refuse(self, **defaults: float) -> None:
        """Raise `DataError` if a setting that is not supported has another value than its default."""
        for name, default in defaults.items():
            if self.number(name, default) != default:
                raise DataError(Problem(f"{name} is not supported; set it to {default:g}", str(self._path)))
