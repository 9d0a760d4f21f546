"""Refusing settings that would change the data and that caffejax does not know how to follow."""

from __future__ import annotations

from collections.abc import Container
from typing import Any

from ..errors import DataError


def refuse_unsupported(message: Any, name: str, known: Container[str]) -> None:
    """Check that no field of a parameter message is set but the known ones.

    Raises:
        DataError: naming every other field that is set to anything but its default.
    """
    others = [
        field.name for field, value in message.ListFields() if field.name not in known and value != field.default_value
    ]
    if others:
        raise DataError([f"{name}.{field} is not supported yet" for field in others])
