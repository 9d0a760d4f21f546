"""Data for a net's Input layers from the user's arrays or iterables."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

import numpy as np

from ...base.errors import DataError, Problem, describe_type, did_you_mean, is_integer, raise_if_any
from ...base.human_readable import format_shape
from ..graph import Graph
from ..layers import CallerInput
from ..layers.blob_checks import shape_remedy
from ..parallel.coordination import note
from .data_identity import checksum_arrays


class _ArrayEpoch:
    """An epoch of examples that are stored in arrays. It begins with row `start_row`."""

    unit = "rows"  # of positions

    def __init__(self, name: str, arrays: Mapping[str, Any], start_row: int) -> None:
        self._arrays = {n: a if hasattr(a, "shape") else np.asarray(a) for n, a in arrays.items()}
        lengths = {n: a.shape[0] if len(a.shape) else None for n, a in self._arrays.items()}
        if len(set(lengths.values())) > 1 or None in lengths.values():
            length_texts = ", ".join(f"'{n}' {'is a number' if k is None else f'has {k}'}" for n, k in lengths.items())
            raise DataError(f"{name} must have arrays with equal numbers of rows, but {length_texts}")
        self._length = next((k for k in lengths.values() if k is not None), 0)
        if start_row > self._length:
            raise DataError(
                f"{name} has {self._length} rows, but the snapshot was made after {start_row} rows had been read; pass "
                "the same data as before the snapshot"
            )
        self._row = start_row

    def take(self, num_rows: int) -> tuple[Any, int, int] | None:
        """Return at most `num_rows` rows, and twice their number, as the position counts rows, too; None at the end."""
        count = min(num_rows, self._length - self._row)
        if count <= 0:
            return None
        start, self._row = self._row, self._row + count
        return {name: array[start : self._row] for name, array in self._arrays.items()}, count, count

    def get_state(self) -> None:
        pass  # the number of rows identifies the position

    def close(self) -> None:
        pass


class _IterableEpoch:
    """An epoch of batches from an iterable, after a number of batches, or at the position of its iterator's state."""

    unit = "batches"

    def __init__(
        self, name: str, batches: Iterable[Any], num_to_skip: int, state: Any, *, is_user_iterator: bool
    ) -> None:
        self._iterator, self._is_user_iterator = iter(batches), is_user_iterator
        self._has_state = _has_state(self._iterator)
        if state is not None and self._has_state:
            try:
                self._iterator.set_state(_decode_state(state))  # type: ignore[attr-defined]
            except Exception as error:  # the user's code may raise any type
                message = f"the iterator of {name} does not accept the position in the snapshot"
                raise DataError(f"{message}: {error}") from error
        elif (num_skipped := sum(1 for _ in islice(self._iterator, num_to_skip))) < num_to_skip:
            raise DataError(
                f"{name} ends after {num_skipped} batches, but the snapshot was made {num_to_skip - num_skipped} "
                "batches later"
            )

    def take(self, num_rows: int) -> tuple[Any, int, int] | None:
        """Return the next batch, 1 for the position, and `num_rows`, as which any batch counts; None at the end."""
        for batch in self._iterator:
            return batch, 1, num_rows
        return None

    def get_state(self) -> Any:
        return self._iterator.get_state() if self._has_state else None  # type: ignore[attr-defined]

    def close(self) -> None:
        close = getattr(self._iterator, "close", None)
        if callable(close) and not self._is_user_iterator:
            close()


def _encode_state(state: Any) -> Any:
    """Return an iterator's state as JSON values, or None if the state has no such form."""
    if isinstance(state, bytes):
        return {"base64": base64.b64encode(state).decode()}
    try:
        return json.loads(json.dumps(state))
    except (TypeError, ValueError):
        return None


def _decode_state(state: Any) -> Any:
    if isinstance(state, Mapping) and state.keys() == {"base64"}:
        return base64.b64decode(state["base64"])
    return state


def _has_state(iterator: Any) -> bool:
    """Return whether an iterator can save and restore its position, as Grain's can."""
    return all(callable(getattr(iterator, name, None)) for name in ("get_state", "set_state"))


# all examples by blob name; or batches; or a function of the epoch number that returns either
Data = Mapping[str, Any] | Iterable[Any] | Callable[[int], Mapping[str, Any] | Iterable[Any]]

_MAX_COUNT = 2**62  # epochs, rows, batches; more is damage


def _is_position(state: Any) -> bool:
    counts = (state.get("epoch"), state.get("done")) if isinstance(state, Mapping) else (None,)
    are_counts = all(is_integer(n) and 0 <= n < _MAX_COUNT for n in counts)
    return are_counts and state.get("unit", "rows") in ("rows", "batches")


class UserData(Iterator[dict[str, np.ndarray]]):
    """Batches for a net's Input layers from the user's data.

    Args:
        name: the name of the user's argument, for messages.
        data: all examples, as `{blob: array}`, an iterable of batches, or a function that takes the number of the
            epoch, counted from 0, and returns either. A batch is a mapping `{blob: array}`, which may have further
            blobs, or a tuple of arrays in the order of `graph.caller_inputs`. An array is any value that
            `numpy.asarray` accepts.
        graph: the net's graph.
        compares: whether all processes read the same data, and the first batch of each epoch is compared; see
            `parallel.note`.

    Raises:
        DataError: if the type of `data` is not supported.
    """

    def __init__(self, name: str, data: Data, graph: Graph, *, compares: bool = False) -> None:
        if isinstance(data, str | bytes) or not (callable(data) or isinstance(data, Iterable)):
            raise DataError(
                f"{name} must be {{blob: array}} of all examples, an iterable of batches, or a function "
                f"from the number of the epoch to either, not {describe_type(data)}"
            )
        self._name, self._data = name, data
        # an iterator cannot start again
        self._user_iterator: Iterator[Any] | None = data if isinstance(data, Iterator) else None
        self._epoch_number, self._num_units_read = 0, 0
        self._current_epoch: _ArrayEpoch | _IterableEpoch | None = None
        # how to reach the position when the epoch is opened
        self._num_batches_to_skip, self._saved_iterator_state = 0, None
        self._position_unit: str | None = None  # the unit of the position
        self._started_epochs: dict[int, int] = {}  # of the last batch: numbers of pieces to epochs that begin with them
        self._file = graph.file
        self._num_splits = graph.layers[0].definition.config.num_parts
        self._compares = False
        self._blobs = {blob: graph.blobs[blob] for blob in graph.caller_inputs}
        self._batch_size = next((b.shape[0] for b in self._blobs.values() if b.shape), 1)
        self._pending_batches: list[dict[str, np.ndarray]] = []
        if isinstance(data, Mapping):  # report mistakes now
            next(self)
            self.set_state({"epoch": 0, "done": 0})
        self._compares = compares

    def __next__(self) -> dict[str, np.ndarray]:
        """Return the next batch by blob name, as copies in the blobs' dtypes.

        The batch size may differ from the net's.

        Raises:
            DataError: if the data has ended, or blobs are missing or have a shape that does not fit. The message names
                each such blob.
        """
        if not self._pending_batches:
            pieces = [self._name_arrays(piece) for piece in self._take(self._batch_size * self._num_splits)]
            for i, epoch in self._started_epochs.items() if self._compares else ():
                note(f"{self._name}, epoch {epoch}", f"checksum {checksum_arrays(pieces[i].values()):08x}")
            batch = pieces[0]
            if len(pieces) > 1:
                batch = {blob: np.concatenate([piece[blob] for piece in pieces]) for blob in self._blobs}
            self._raise_batch_problems(
                f"has {len(a)} examples in '{blob}', which cannot be divided among {self._num_splits} devices"
                for blob, a in batch.items()
                if a.ndim and len(a) % self._num_splits
            )
            n = self._num_splits
            parts = {blob: np.split(a, n) if a.ndim else [a] * n for blob, a in batch.items()}
            self._pending_batches = [{blob: arrays[i] for blob, arrays in parts.items()} for i in range(n)]
        return self._pending_batches.pop(0)

    def describe(self) -> str:
        """Return the number of rows of arrays and a checksum of them, or the kind of other data."""
        if not isinstance(self._data, Mapping):
            return "a function of the epoch" if callable(self._data) else "an iterable of batches"
        arrays = {blob: self._data[blob] for blob in self._blobs}
        num_rows = len(next(iter(arrays.values()), ()))
        return f"{num_rows} rows (checksum {checksum_arrays(map(_sample_rows, arrays.values())):08x})"

    def _take(self, num_rows: int) -> list[Any]:
        """Return the next batch of an iterable, or `num_rows` rows, in pieces if they cross the end of an epoch."""
        pieces: list[Any] = []
        self._started_epochs = {}
        while num_rows > 0:
            epoch = self._get_open_epoch()
            item = epoch.take(num_rows)
            if item is None:
                self._begin_next_epoch(epoch)
                continue
            if not self._num_units_read:
                self._started_epochs[len(pieces)] = self._epoch_number
            piece, num_units, num_rows_read = item
            pieces.append(piece)
            self._num_units_read, num_rows = self._num_units_read + num_units, num_rows - num_rows_read
        return pieces

    @property
    def position(self) -> str:
        """The position after the last batch as text, for messages."""
        counts_rows = self._current_epoch is not None and self._current_epoch.unit == "rows"
        return f"{'up to row' if counts_rows else 'batch'} {self._num_units_read} of epoch {self._epoch_number}"

    def get_state(self) -> dict[str, Any]:
        """Return the position of the next batch as JSON values."""
        state: dict[str, Any] = {"epoch": self._epoch_number, "done": self._num_units_read}
        if self._current_epoch is not None:
            state["unit"] = self._current_epoch.unit
            iterator_state = _encode_state(self._current_epoch.get_state())
        else:
            iterator_state = self._saved_iterator_state
            if iterator_state is None and _has_state(self._user_iterator):
                iterator_state = _encode_state(self._user_iterator.get_state())  # type: ignore[union-attr]
        return state if iterator_state is None else {**state, "iterator": iterator_state}

    def set_state(self, state: Any) -> None:
        """Restore a position that `get_state` returned.

        Raises:
            DataError: if it is not a position, or a one-time iterator has already passed it.
        """
        if not _is_position(state):
            raise DataError(f"{str(state)[:60]} is not a position in {self._name}")
        epoch_number, num_units, unit = state["epoch"], state["done"], state.get("unit")
        if (epoch_number, num_units) == (self._epoch_number, self._num_units_read) and "iterator" not in state:
            self._pending_batches = []
            return
        num_consumed = 0
        if self._user_iterator is not None and not _has_state(self._user_iterator):
            if epoch_number or num_units < self._num_units_read:
                raise DataError(
                    f"{self._name} is an iterator that has returned {self._num_units_read} batches, and cannot go back "
                    f"to the snapshot's position after {num_units}; pass an object that can be iterated again"
                )
            num_consumed = self._num_units_read
        self.close()
        self._pending_batches = []
        self._epoch_number, self._num_units_read = epoch_number, num_units
        self._num_batches_to_skip, self._saved_iterator_state = num_units - num_consumed, state.get("iterator")
        self._position_unit = unit if num_units else None

    def close(self) -> None:
        """Close the iterator. The next batch continues at the same position."""
        if self._current_epoch is not None:
            self._saved_iterator_state = _encode_state(self._current_epoch.get_state())
            self._num_batches_to_skip = self._num_units_read if self._user_iterator is None else 0
            self._current_epoch.close()
            self._current_epoch = None

    def _get_open_epoch(self) -> _ArrayEpoch | _IterableEpoch:
        if self._current_epoch is None:
            data = self._data(self._epoch_number) if callable(self._data) else self._data
            unit = "rows" if isinstance(data, Mapping) else "batches"
            if self._position_unit not in (None, unit):
                raise DataError(
                    f"the snapshot's position in {self._name} counts {self._position_unit}, but the data consists of "
                    f"{unit}; pass data of the same kind as before the snapshot"
                )
            if isinstance(data, Mapping):
                self._current_epoch = _ArrayEpoch(self._name, data, self._num_units_read)
            elif isinstance(data, Iterable) and not isinstance(data, str | bytes):
                num_to_skip, state = self._num_batches_to_skip, self._saved_iterator_state
                is_users = self._user_iterator is not None
                self._current_epoch = _IterableEpoch(self._name, data, num_to_skip, state, is_user_iterator=is_users)
            else:
                raise DataError(
                    f"{self._name}({self._epoch_number}) must return {{blob: array}} of all examples or an iterable of "
                    f"batches, not {describe_type(data)}"
                )
            self._num_batches_to_skip, self._saved_iterator_state, self._position_unit = 0, None, None
        return self._current_epoch

    def _begin_next_epoch(self, ended_epoch: _ArrayEpoch | _IterableEpoch) -> None:
        if self._user_iterator is not None:
            raise DataError(
                f"{self._name} has ended after {self._num_units_read} batches, and an iterator cannot start again; "
                "pass a list, another object that can be iterated again, or a function that returns a new iterator for "
                "each epoch"
            )
        if not self._num_units_read:
            raise DataError(f"{self._name} is empty in epoch {self._epoch_number}")
        ended_epoch.close()
        self._current_epoch, self._epoch_number, self._num_units_read = None, self._epoch_number + 1, 0

    def shape_problems(self, batch: Mapping[str, np.ndarray]) -> Iterator[Problem]:
        """Yield a problem for each blob of a batch whose shape differs from the net's beyond the first axis.

        If no blob differs in this way, yield a problem for each blob whose batch size differs.
        """
        mismatched = {blob: spec.shape for blob, spec in self._blobs.items() if batch[blob].shape != spec.shape}
        other_rows = {blob: shape for blob, shape in mismatched.items() if batch[blob].shape[1:] != shape[1:]}
        for blob, shape in (other_rows or mismatched).items():
            message = (
                f"'{blob}' of the batch has shape {batch[blob].shape}, but the net is built for {shape} and cannot be "
                f"reshaped to {batch[blob].shape}"
            )
            yield Problem(f"{self._name}, {self.position}: {message}", self._file)

    def _name_arrays(self, batch: Any) -> dict[str, np.ndarray]:
        names, type_name = ", ".join(f"'{blob}'" for blob in self._blobs), type(batch).__name__
        if isinstance(batch, tuple | list):
            if len(batch) != len(self._blobs):
                message = f"has {len(batch)} arrays, but the net has {len(self._blobs)} inputs: {names}"
                self._raise_batch_problems([message])
            batch = dict(zip(self._blobs, batch, strict=True))
        if not isinstance(batch, Mapping):
            message = f"must be {{blob: array}}, or a tuple of arrays for {names}, not of type {type_name}"
            self._raise_batch_problems([message])
        arrays, problems = {}, []
        for blob, spec in self._blobs.items():
            if blob not in batch:
                other_names = [name for name in batch if isinstance(name, str) and name not in self._blobs]
                available = ", ".join(map(repr, batch)) or "an empty mapping"
                problems.append(f"has no '{blob}', only {available}{did_you_mean(blob, other_names)}")
                continue
            try:
                array = _convert_to_array(batch[blob], spec.shape)
            except DataError as error:
                problems.append(f"'{blob}' {error}")
            else:
                arrays[blob] = np.array(array, spec.dtype)  # a copy, as the caller may write to the original
        self._raise_batch_problems(problems)
        return arrays

    def _raise_batch_problems(self, problems: Iterable[str]) -> None:
        location = f"{self._name}, {self.position}"
        raise_if_any(DataError, (f"{location}: the batch {problem}" for problem in problems), self._file)


def format_inputs(graph: Graph) -> Iterator[str]:
    """Yield each layer whose tops the caller passes, with their shapes, for messages."""
    for layer in graph.layers:
        if isinstance(layer.type.implementation, CallerInput):
            tops = ", ".join(f"'{top}' ({format_shape(graph.blobs[top].shape)})" for top in layer.tops)
            yield f"layer '{layer.name}' ({layer.type.name}) with {tops}"


_MAX_COMPARED_BYTES = 2**26
_NUM_COMPARED_ROWS = 256  # of larger arrays


def _sample_rows(array: Any) -> Any:
    if getattr(array, "nbytes", 0) <= _MAX_COMPARED_BYTES:
        return array
    step = max(1, len(array) // _NUM_COMPARED_ROWS)
    return np.stack([np.asarray(array[i]) for i in range(0, len(array), step)])


def _convert_to_array(value: Any, shape: tuple[int, ...]) -> np.ndarray:
    try:
        array = np.asarray(value)
    except Exception as error:  # any exception, such as a tensor on a GPU raises
        reason = next(iter(str(error).splitlines()), repr(error))
        raise DataError(f"cannot be converted to a NumPy array: {reason}") from error
    if array.dtype.kind not in "biuf" and array.dtype.name != "bfloat16":
        raise DataError(f"holds {array.dtype}, not numbers")
    if remedy := shape_remedy(array.shape, shape):
        raise DataError(f"has shape {array.shape}, but the net needs {shape}{remedy}")
    if array.ndim and not array.size:
        raise DataError(f"is empty: its shape is {array.shape}")
    return array
