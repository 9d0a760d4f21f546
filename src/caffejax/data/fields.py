"""The refusal of settings that would change the data and that caffejax does not follow."""

from __future__ import annotations

from collections.abc import Container
from typing import Any

from ..errors import DataError


def refuse_unsupported(message: Any, name: str, known: Container[str]) -> None:
    """Check that no field of a parameter message is set but the known ones.

    Raises:
        DataError: naming every other field that is set to anything but its default.
    """
    unsupported = [
        field.name for field, value in message.ListFields() if field.name not in known and value != field.default_value
    ]
    if unsupported:
        raise DataError([f"{name}.{field} is not supported yet" for field in unsupported])
