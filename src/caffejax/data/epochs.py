"""Data of the user's own, epoch after epoch, with a place in it that can be kept."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from ..errors import DataError
from .epoch import Epoch, Rows, Stream, plain, tells

# all examples: blob name -> array; or batches; or, by the number of the epoch, either of them
Data = Mapping[str, Any] | Iterable[Any] | Callable[[int], Mapping[str, Any] | Iterable[Any]]

_LARGEST = 2**62  # epochs, rows, batches; more is damage


class Epochs:
    """Batches of what the user gave, round and round.

    Args:
        name: of the argument, for messages.
        data: all examples, as `{blob: array}`; or an iterable of batches, whatever they are; or a function that is
            given the number of the epoch, from 0 on, and returns one of these.

    Raises:
        DataError: if it is none of them.
    """

    def __init__(self, name: str, data: Data) -> None:
        if isinstance(data, str | bytes) or not (callable(data) or isinstance(data, Iterable)):
            raise DataError(
                f"{name} must be {{blob: array}} of all examples, an iterable of batches, or a function that is given "
                f"the number of the epoch and returns either, not {_kind(data)}"
            )
        self._name, self._data = name, data
        # an iterator is its own iterable: it cannot begin again
        self._once: Iterator[Any] | None = data if isinstance(data, Iterator) else None
        self._number, self._done = 0, 0
        self._open: Epoch | None = None
        self._skip, self._resume = 0, None  # how to get to the place when the epoch is opened
        self._unit: str | None = None  # what that counts

    def take(self, rows: int) -> list[Any]:
        """Return the next batch: one, as it was given; or rows of examples, in as many pieces as epochs hold them.

        Raises:
            DataError: if an iterator has ended, an epoch is empty, or it is neither examples nor batches.
        """
        pieces = []
        while rows > 0:
            epoch = self._epoch()
            found = epoch.take(rows)
            if found is None:
                self._begin_next(epoch)
                continue
            piece, units, got = found
            pieces.append(piece)
            self._done, rows = self._done + units, rows - got
        return pieces

    @property
    def place(self) -> str:
        """Which batch was the last, in words."""
        by_row = self._open is not None and self._open.unit == "rows"
        return f"{'up to row' if by_row else 'batch'} {self._done} of epoch {self._number}"

    def get_state(self) -> dict[str, Any]:
        """Return the place of the next batch, as plain values."""
        state: dict[str, Any] = {"epoch": self._number, "done": self._done}
        if self._open is not None:
            state["unit"] = self._open.unit
            iterator = plain(self._open.state())
        else:
            unread = self._resume is None and tells(self._once)
            iterator = plain(self._once.get_state()) if unread else self._resume  # type: ignore[union-attr]
        return state if iterator is None else {**state, "iterator": iterator}

    def set_state(self, state: Any) -> None:
        """Go to a place that `get_state` gave.

        Raises:
            DataError: if it is no such place, or lies before that of an iterator.
        """
        if not _is_place(state):
            raise DataError(f"{str(state)[:60]} is not a place in {self._name}")
        number, done, unit = state["epoch"], state["done"], state.get("unit")
        if (number, done) == (self._number, self._done) and "iterator" not in state:
            return
        behind = 0
        if self._once is not None and not tells(self._once):
            if number or done < self._done:
                raise DataError(
                    f"{self._name} is an iterator that stands after {self._done} batches, and cannot go back to where "
                    f"the snapshot was made, after {done}; give what can be iterated again"
                )
            behind = self._done
        self.close()
        self._number, self._done, self._skip, self._resume = number, done, done - behind, state.get("iterator")
        self._unit = unit if done else None

    def close(self) -> None:
        """Let go of what reads. Reading goes on where it was."""
        if self._open is not None:
            self._resume = plain(self._open.state())
            self._skip = self._done if self._once is None else 0
            self._open.close()
            self._open = None

    def _epoch(self) -> Epoch:
        """Return the epoch that is read, opened at its place if it is not open."""
        if self._open is None:
            found = self._data(self._number) if callable(self._data) else self._data
            unit = "rows" if isinstance(found, Mapping) else "batches"
            if self._unit not in (None, unit):
                raise DataError(
                    f"the snapshot counts {self._unit} of {self._name}, but {unit} are given; "
                    "give data of the kind that it was made with"
                )
            if isinstance(found, Mapping):
                self._open = Rows(self._name, found, self._done)
            elif isinstance(found, Iterable) and not isinstance(found, str | bytes):
                self._open = Stream(self._name, found, self._skip, self._resume, once=self._once is not None)
            else:
                raise DataError(
                    f"{self._name}({self._number}) must return {{blob: array}} of all examples or an iterable of "
                    f"batches, not {_kind(found)}"
                )
            self._skip, self._resume, self._unit = 0, None, None
        return self._open

    def _begin_next(self, ended: Epoch) -> None:
        if self._once is not None:
            raise DataError(
                f"{self._name} has ended after {self._done} batches, and an iterator cannot begin again; give a list, "
                "another object that can be iterated again, or a function that returns a new iterator for each epoch"
            )
        if not self._done:
            raise DataError(f"{self._name} is empty in epoch {self._number}")
        ended.close()
        self._open, self._number, self._done = None, self._number + 1, 0


def _is_place(state: Any) -> bool:
    counts = (state.get("epoch"), state.get("done")) if isinstance(state, Mapping) else (None,)
    return all(map(_is_count, counts)) and state.get("unit", "rows") in ("rows", "batches")


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _LARGEST


def _kind(value: Any) -> str:
    return "None" if value is None else f"a value of type {type(value).__name__}"
