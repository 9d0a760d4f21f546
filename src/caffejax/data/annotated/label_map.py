"""Label maps: the numbers of classes, and their names."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from google.protobuf import text_format

from ...errors import DataError, Problem
from ...paths import content
from ...schema.caffe_pb2 import LabelMap


def read_label_map(path: Path) -> Mapping[str, int]:
    """Read a label map, a LabelMap in text form; return the classes' numbers by name.

    Raises:
        DataError: if it cannot be read, or a name or a number occurs twice.
    """
    try:
        message = text_format.Parse(content(path), LabelMap())
    except OSError as error:
        raise DataError(Problem(f"the label map cannot be read: {error.strerror}", str(path))) from error
    except (text_format.ParseError, UnicodeDecodeError) as error:
        raise DataError(Problem(f"is no label map: {error}", str(path))) from error
    numbers: dict[str, int] = {}
    problems: list[str] = [] if message.item else ["the label map has no items"]
    for item in message.item:
        if item.name in numbers:
            problems.append(f"name '{item.name}' occurs twice")
        if item.label in numbers.values():
            problems.append(f"label {item.label} occurs twice")
        numbers[item.name] = item.label
    if problems:
        raise DataError(Problem(problem, str(path)) for problem in problems)
    return numbers
