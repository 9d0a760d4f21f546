"""The user's own arrays or iterables as data for a net's Input layers."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, Protocol

import numpy as np

from ..errors import DataError, Problem, did_you_mean
from ..graph import Graph
from .common import dims


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


# all examples: blob name -> array; or batches; or, by the number of the epoch, either of them
Data = Mapping[str, Any] | Iterable[Any] | Callable[[int], Mapping[str, Any] | Iterable[Any]]

_MAX_COUNT = 2**62  # epochs, rows, batches; more is damage


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
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _MAX_COUNT


def _kind(value: Any) -> str:
    return "None" if value is None else f"a value of type {type(value).__name__}"


class OwnData:
    """Batches for the layers of a net that are fed, from what the user gave.

    Args:
        name: of the argument, for messages.
        data: as for `Epochs`. A batch is `{blob: array}`, where other blobs may be given too, or a tuple of arrays in
            the order of `graph.fed_by_hand`; of anything that NumPy makes an array of.
        graph: the net's.
        parts: how many of the net's batches each of the user's is cut into; the devices that share it.

    Raises:
        DataError: if the data is of no such kind.
    """

    def __init__(self, name: str, data: Data, graph: Graph, parts: int = 1) -> None:
        self._name, self._parts, self._file = name, parts, graph.file
        self._blobs = {blob: graph.blobs[blob] for blob in graph.fed_by_hand}
        self._epochs = Epochs(name, data)
        self._rows = next((b.shape[0] for b in self._blobs.values() if b.shape), 1)
        self._cut: list[dict[str, np.ndarray]] = []
        if isinstance(data, Mapping):  # mistakes show at once
            next(self)
            self.set_state({"epoch": 0, "done": 0})

    def __iter__(self) -> OwnData:
        return self

    def __next__(self) -> dict[str, np.ndarray]:
        """Return the next batch: copies, of the blobs' dtype. A batch may have another size than the net's.

        Raises:
            DataError: naming all that is missing or of another form, or if there are no more batches.
        """
        if not self._cut:
            given = [self._named(piece) for piece in self._epochs.take(self._rows * self._parts)]
            joined = {blob: np.concatenate([p[blob] for p in given]) for blob in self._blobs} if given[1:] else given[0]
            self._raise_of(
                f"has {len(a)} examples in '{blob}', which cannot be divided among {self._parts} devices"
                for blob, a in joined.items()
                if a.ndim and len(a) % self._parts
            )
            cut = {blob: np.split(a, self._parts) if a.ndim else [a] * self._parts for blob, a in joined.items()}
            self._cut = [dict(zip(cut, arrays, strict=True)) for arrays in zip(*cut.values(), strict=True)]
        return self._cut.pop(0)

    def get_state(self) -> dict[str, Any]:
        """Return the place of the next batch, as plain values."""
        return self._epochs.get_state()

    def set_state(self, state: Any) -> None:
        """Go to a place that `get_state` gave; raises `DataError` if it is none, or cannot be reached."""
        self._epochs.set_state(state)
        self._cut = []

    def close(self) -> None:
        """Let go of what reads."""
        self._epochs.close()

    def other_shapes(self, batch: Mapping[str, np.ndarray]) -> Iterator[Problem]:
        """Yield in what shapes a batch differs from the net, as a problem."""
        shapes = {blob: wanted.shape for blob, wanted in self._blobs.items() if batch[blob].shape != wanted.shape}
        beyond_rows = {blob: shape for blob, shape in shapes.items() if batch[blob].shape[1:] != shape[1:]}
        for blob, shape in (beyond_rows or shapes).items():
            message = f"the batch has '{blob}' of shape {batch[blob].shape}, but the net is built for {shape}"
            yield Problem(f"{self._name}, {self._epochs.place}: {message}, and cannot be reshaped", self._file)

    def _named(self, given: Any) -> dict[str, np.ndarray]:
        """Return a batch by name, or the rows of one, as arrays of the blobs' dtype."""
        names, kind = ", ".join(f"'{blob}'" for blob in self._blobs), type(given).__name__
        if isinstance(given, tuple | list):
            if len(given) != len(self._blobs):
                self._raise_of([f"has {len(given)} arrays, but the net is fed {len(self._blobs)}: {names}"])
            given = dict(zip(self._blobs, given, strict=True))
        if not isinstance(given, Mapping):
            self._raise_of([f"must be {{blob: array}}, or a tuple of arrays for {names}, not of type {kind}"])
        found, problems = {}, []
        for blob, wanted in self._blobs.items():
            if blob not in given:
                others = [name for name in given if isinstance(name, str) and name not in self._blobs]
                has = ", ".join(map(repr, given))
                problems.append(f"has no '{blob}', it has {has or 'nothing'}{did_you_mean(blob, others)}")
                continue
            array, problem = _as_array(given[blob])
            problem = problem or self._problem(array, wanted.shape)
            if problem:
                problems.append(f"'{blob}' {problem}")
            else:
                found[blob] = np.array(array, wanted.dtype)  # a copy: who gave it may write to it again
        self._raise_of(problems)
        return found

    def _problem(self, array: np.ndarray, shape: tuple[int, ...]) -> str | None:
        if array.ndim != len(shape):
            return f"is of shape {array.shape}, the net's is {shape}; only the first axis may be of another length"
        if array.ndim == 4 and array.shape[1:] != shape[1:] and (array.shape[3], *array.shape[1:3]) == shape[1:]:
            return f"is of shape {array.shape}, the net's is {shape}: transpose it by (0, 3, 1, 2) to Caffe's order"
        if array.ndim and not array.size:
            return f"is empty, of shape {array.shape}"
        return None

    def _raise_of(self, problems: Iterable[str]) -> None:
        where = f"{self._name}, {self._epochs.place}"
        if found := [Problem(f"{where}: the batch {problem}", self._file) for problem in problems]:
            raise DataError(found)


def shapes_of(graph: Graph) -> Iterator[str]:
    """Yield each blob that a net must be fed, with its shape, for messages."""
    for blob in graph.fed_by_hand:
        yield f"'{blob}' ({dims(graph.blobs[blob].shape)})"


def _as_array(value: Any) -> tuple[np.ndarray, str | None]:
    try:
        array = np.asarray(value)
    except Exception as error:  # whatever an object raises that is no array, such as a tensor on a GPU
        return np.zeros(()), f"cannot be made a NumPy array: {str(error).splitlines()[0] if str(error) else error!r}"
    if array.dtype.kind not in "biuf" and array.dtype.name != "bfloat16":
        return array, f"holds {array.dtype}, not numbers"
    return array, None
