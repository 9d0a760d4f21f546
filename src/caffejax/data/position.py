"""The position of a source: how many examples it has given since the start of training."""

from __future__ import annotations

from collections.abc import Mapping

from ..errors import DataError

_LARGEST = 2**62  # examples; more is damage


def encode_position(examples: int) -> dict[str, int]:
    """Return the position after that many examples."""
    return {"examples": examples}


def decode_position(state: Mapping[str, int]) -> int:
    """Return how many examples lie before a position.

    Raises:
        DataError: if this is no position.
    """
    examples = state.get("examples") if isinstance(state, Mapping) else None
    if not isinstance(examples, int) or isinstance(examples, bool) or not 0 <= examples < _LARGEST:
        raise DataError(f"{str(state)[:60]} is not the position of a data source")
    return examples
