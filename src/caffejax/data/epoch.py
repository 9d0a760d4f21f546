"""What an epoch of the user's own data holds: examples as arrays, or batches as an iterable gives them."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any, Protocol

import numpy as np

from ..errors import DataError


class Epoch(Protocol):
    """What an epoch holds, from some place in it on; it counts rows or batches, as `unit` says."""

    unit: str

    def take(self, rows: int) -> tuple[Any, int, int] | None:
        """Return what is next, how many units and how many rows that is; None at the end."""

    def state(self) -> Any:
        """Return more of the place than the number of units, if there is more."""

    def close(self) -> None:
        """Let go of what reads."""


class Rows:
    """The examples of an epoch, as arrays; from row `start` on."""

    unit = "rows"

    def __init__(self, name: str, arrays: Mapping[str, Any], start: int) -> None:
        self._arrays = {n: a if hasattr(a, "shape") else np.asarray(a) for n, a in arrays.items()}
        lengths = {n: a.shape[0] if len(a.shape) else None for n, a in self._arrays.items()}
        if len(set(lengths.values())) > 1 or None in lengths.values():
            listed = ", ".join(f"'{n}' {'is a number' if k is None else f'has {k}'}" for n, k in lengths.items())
            raise DataError(f"{name} must have as many rows in each of its arrays, but {listed}")
        self._length = next((k for k in lengths.values() if k is not None), 0)
        if start > self._length:
            raise DataError(f"{name} has {self._length} rows, but the snapshot stands after {start}")
        self._at = start

    def take(self, rows: int) -> tuple[Any, int, int] | None:
        """Return the next rows, as many as there are of those wanted."""
        got = min(rows, self._length - self._at)
        if got <= 0:
            return None
        start, self._at = self._at, self._at + got
        return {name: array[start : self._at] for name, array in self._arrays.items()}, got, got

    def state(self) -> None:
        """There is no more to say than the number of rows."""

    def close(self) -> None:
        """Do nothing: nothing is open."""


class Stream:
    """The batches of an epoch, as an iterable gives them; after `skip` more, or from the iterator's own state on."""

    unit = "batches"

    def __init__(self, name: str, batches: Iterable[Any], skip: int, state: Any, *, once: bool) -> None:
        self._iterator, self._once = iter(batches), once
        self._told = tells(self._iterator)
        if state is not None and self._told:
            try:
                self._iterator.set_state(_from_plain(state))  # type: ignore[attr-defined]
            except Exception as error:  # whatever an iterator raises that does not take it
                raise DataError(f"the iterator of {name} does not take the place in the snapshot: {error}") from error
        elif (passed := sum(1 for _ in islice(self._iterator, skip))) < skip:
            raise DataError(f"{name} ends after {passed} batches, but the snapshot stands {skip - passed} further on")

    def take(self, rows: int) -> tuple[Any, int, int] | None:
        """Return the next batch, whatever its number of rows."""
        for batch in self._iterator:
            return batch, 1, rows
        return None

    def state(self) -> Any:
        """Return the iterator's own state, if it has one, as those of Grain have."""
        return self._iterator.get_state() if self._told else None  # type: ignore[attr-defined]

    def close(self) -> None:
        """Close the iterator, unless it is the user's own."""
        close = getattr(self._iterator, "close", None)
        if callable(close) and not self._once:
            close()


def plain(state: Any) -> Any:
    """Return an iterator's state as JSON can hold it; None if it cannot."""
    if isinstance(state, bytes):
        return {"base64": base64.b64encode(state).decode()}
    try:
        return json.loads(json.dumps(state))
    except (TypeError, ValueError):
        return None


def _from_plain(state: Any) -> Any:
    if isinstance(state, Mapping) and state.keys() == {"base64"}:
        return base64.b64decode(state["base64"])
    return state


def tells(iterator: Any) -> bool:
    """Return whether an iterator tells its place, as those of Grain do."""
    return all(callable(getattr(iterator, name, None)) for name in ("get_state", "set_state"))
