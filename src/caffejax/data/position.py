"""The position of a source: how many examples it has given since the start of training."""

from __future__ import annotations

from collections.abc import Mapping

from ..errors import DataError


def encode_position(examples: int) -> dict[str, int]:
    """Return the position after that many examples."""
    return {"examples": examples}


def decode_position(state: Mapping[str, int]) -> int:
    """Return how many examples lie before a position.

    Raises:
        DataError: if this is no position.
    """
    examples = state.get("examples")
    if not isinstance(examples, int) or examples < 0:
        raise DataError(f"{dict(state)} is not the position of a data source")
    return examples
