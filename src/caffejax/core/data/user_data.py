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
from ..parallel import note
from .data_identity import checksum_arrays


class ArrayEpoch:
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
        """Return the next rows as `(arrays, count, count)`, or None at the end of the epoch.

        `count` is the number of rows, at most `num_rows`. It is returned twice, because the position counts rows, too.
        """
        count = min(num_rows, self._length - self._row)
        if count <= 0:
            return None
        start, self._row = self._row, self._row + count
        return {name: array[start : self._row] for name, array in self._arrays.items()}, count, count

    def get_state(self) -> None:
        """Return None, because the number of rows identifies the position."""

    def close(self) -> None:
        """Do nothing: no file is open."""


class IterableEpoch:
    """An epoch of batches from an iterable.

    Args:
        name: the name of the user's argument, for messages.
        batches: the iterable.
        num_to_skip: the number of batches to skip.
        state: the state to restore the iterator from, instead of skipping batches, or None.
        is_user_iterator: whether `batches` is the user's iterator, which must not be closed.
    """

    unit = "batches"

    def __init__(
        self, name: str, batches: Iterable[Any], num_to_skip: int, state: Any, *, is_user_iterator: bool
    ) -> None:
        self._iterator, self._is_user_iterator = iter(batches), is_user_iterator
        self._has_state = has_state(self._iterator)
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
        """Return the next batch as `(batch, 1, num_rows)`, or None at the end of the epoch.

        The position advances by one batch. A batch of any size counts as the `num_rows` rows that were requested.
        """
        for batch in self._iterator:
            return batch, 1, num_rows
        return None

    def get_state(self) -> Any:
        """Return the iterator's state, or None if it has no `get_state` method. Grain's iterators have one."""
        return self._iterator.get_state() if self._has_state else None  # type: ignore[attr-defined]

    def close(self) -> None:
        """Close the iterator, except if it is the user's iterator."""
        close = getattr(self._iterator, "close", None)
        if callable(close) and not self._is_user_iterator:
            close()


Epoch = ArrayEpoch | IterableEpoch  # one pass over the data


def encode_state(state: Any) -> Any:
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


def has_state(iterator: Any) -> bool:
    """Return whether an iterator can save and restore its position, as Grain's can."""
    return all(callable(getattr(iterator, name, None)) for name in ("get_state", "set_state"))


# all examples by blob name; or batches; or a function of the epoch number that returns either
Data = Mapping[str, Any] | Iterable[Any] | Callable[[int], Mapping[str, Any] | Iterable[Any]]

_MAX_COUNT = 2**62  # epochs, rows, batches; more is damage


class EpochIterator:
    """Endless batches of user data, with a position that can be saved and restored.

    Args:
        name: the name of the user's argument, for messages.
        data: all examples, as `{blob: array}`, an iterable of batches, or a function that takes the number of the
            epoch, counted from 0, and returns either.

    Raises:
        DataError: if the type of `data` is not supported.
    """

    def __init__(self, name: str, data: Data) -> None:
        if isinstance(data, str | bytes) or not (callable(data) or isinstance(data, Iterable)):
            raise DataError(
                f"{name} must be {{blob: array}} of all examples, an iterable of batches, or a function "
                f"from the number of the epoch to either, not {describe_type(data)}"
            )
        self._name, self._data = name, data
        # an iterator cannot start again
        self._user_iterator: Iterator[Any] | None = data if isinstance(data, Iterator) else None
        self._epoch_number, self._num_units_read = 0, 0
        self._current_epoch: Epoch | None = None
        # how to reach the position when the epoch is opened
        self._num_batches_to_skip, self._saved_iterator_state = 0, None
        self._position_unit: str | None = None  # the unit of the position
        self.started_epochs: dict[int, int] = {}  # of the last batch: numbers of pieces to epochs that begin with them

    def take(self, num_rows: int) -> list[Any]:
        """Return the next batch as a list of pieces.

        For an iterable, the list holds its next batch. For arrays, it holds `num_rows` rows, in several pieces if the
        batch crosses the end of an epoch.

        Raises:
            DataError: if an iterator has ended, an epoch is empty, or `data` is a function and returned an unsupported
                type.
        """
        pieces: list[Any] = []
        self.started_epochs = {}
        while num_rows > 0:
            epoch = self._get_open_epoch()
            item = epoch.take(num_rows)
            if item is None:
                self._begin_next_epoch(epoch)
                continue
            if not self._num_units_read:
                self.started_epochs[len(pieces)] = self._epoch_number
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
            iterator_state = encode_state(self._current_epoch.get_state())
        else:
            iterator_state = self._saved_iterator_state
            if iterator_state is None and has_state(self._user_iterator):
                iterator_state = encode_state(self._user_iterator.get_state())  # type: ignore[union-attr]
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
            return
        num_consumed = 0
        if self._user_iterator is not None and not has_state(self._user_iterator):
            if epoch_number or num_units < self._num_units_read:
                raise DataError(
                    f"{self._name} is an iterator that has returned {self._num_units_read} batches, and cannot go back "
                    f"to the snapshot's position after {num_units}; pass an object that can be iterated again"
                )
            num_consumed = self._num_units_read
        self.close()
        self._epoch_number, self._num_units_read = epoch_number, num_units
        self._num_batches_to_skip, self._saved_iterator_state = num_units - num_consumed, state.get("iterator")
        self._position_unit = unit if num_units else None

    def close(self) -> None:
        """Close the iterator. The next `take` continues at the same position."""
        if self._current_epoch is not None:
            self._saved_iterator_state = encode_state(self._current_epoch.get_state())
            self._num_batches_to_skip = self._num_units_read if self._user_iterator is None else 0
            self._current_epoch.close()
            self._current_epoch = None

    def _get_open_epoch(self) -> Epoch:
        """Return the current epoch, and open it at its position if it is closed."""
        if self._current_epoch is None:
            data = self._data(self._epoch_number) if callable(self._data) else self._data
            unit = "rows" if isinstance(data, Mapping) else "batches"
            if self._position_unit not in (None, unit):
                raise DataError(
                    f"the snapshot's position in {self._name} counts {self._position_unit}, but the data consists of "
                    f"{unit}; pass data of the same kind as before the snapshot"
                )
            if isinstance(data, Mapping):
                self._current_epoch = ArrayEpoch(self._name, data, self._num_units_read)
            elif isinstance(data, Iterable) and not isinstance(data, str | bytes):
                self._current_epoch = IterableEpoch(
                    self._name,
                    data,
                    self._num_batches_to_skip,
                    self._saved_iterator_state,
                    is_user_iterator=self._user_iterator is not None,
                )
            else:
                raise DataError(
                    f"{self._name}({self._epoch_number}) must return {{blob: array}} of all examples or an iterable of "
                    f"batches, not {describe_type(data)}"
                )
            self._num_batches_to_skip, self._saved_iterator_state, self._position_unit = 0, None, None
        return self._current_epoch

    def _begin_next_epoch(self, ended_epoch: Epoch) -> None:
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


def _is_position(state: Any) -> bool:
    counts = (state.get("epoch"), state.get("done")) if isinstance(state, Mapping) else (None,)
    return all(map(_is_count, counts)) and state.get("unit", "rows") in ("rows", "batches")


def _is_count(value: Any) -> bool:
    return is_integer(value) and bool(0 <= value < _MAX_COUNT)


class UserData:
    """Batches for a net's Input layers from the user's data.

    Args:
        name: the name of the user's argument, for messages.
        data: see `EpochIterator`. A batch is a mapping `{blob: array}`, which may have further blobs, or a tuple of
            arrays in the order of `graph.caller_inputs`. An array is any value that `numpy.asarray` accepts.
        graph: the net's graph.
        compares: whether all processes read the same data, and the first batch of each epoch is compared; see
            `parallel.note`.

    Raises:
        DataError: if the type of `data` is not supported.
    """

    def __init__(self, name: str, data: Data, graph: Graph, *, compares: bool = False) -> None:
        self._name, self._file = name, graph.file
        self._num_splits = graph.layers[0].definition.config.num_parts
        self._data, self._compares = data, False
        self._blobs = {blob: graph.blobs[blob] for blob in graph.caller_inputs}
        self._epochs = EpochIterator(name, data)
        self._batch_size = next((b.shape[0] for b in self._blobs.values() if b.shape), 1)
        self._pending_batches: list[dict[str, np.ndarray]] = []
        if isinstance(data, Mapping):  # report mistakes now
            next(self)
            self.set_state({"epoch": 0, "done": 0})
        self._compares = compares

    def __iter__(self) -> UserData:
        return self

    def __next__(self) -> dict[str, np.ndarray]:
        """Return the next batch by blob name, as copies in the blobs' dtypes.

        The batch size may differ from the net's.

        Raises:
            DataError: if the data has ended, or blobs are missing or have a shape that does not fit. The message names
                each such blob.
        """
        if not self._pending_batches:
            pieces = [self._name_arrays(piece) for piece in self._epochs.take(self._batch_size * self._num_splits)]
            for i, epoch in self._epochs.started_epochs.items() if self._compares else ():
                note(f"{self._name}, epoch {epoch}", f"checksum {checksum_arrays(pieces[i].values()):08x}")
            batch = pieces[0]
            if len(pieces) > 1:
                batch = {blob: np.concatenate([piece[blob] for piece in pieces]) for blob in self._blobs}
            self._raise_batch_problems(
                f"has {len(a)} examples in '{blob}', which cannot be divided among {self._num_splits} devices"
                for blob, a in batch.items()
                if a.ndim and len(a) % self._num_splits
            )
            parts = {
                blob: np.split(a, self._num_splits) if a.ndim else [a] * self._num_splits for blob, a in batch.items()
            }
            self._pending_batches = [
                dict(zip(parts, arrays, strict=True)) for arrays in zip(*parts.values(), strict=True)
            ]
        return self._pending_batches.pop(0)

    def describe(self) -> str:
        """Return the number of rows of arrays and a checksum of them, or the kind of other data."""
        if not isinstance(self._data, Mapping):
            return "a function of the epoch" if callable(self._data) else "an iterable of batches"
        arrays = {blob: self._data[blob] for blob in self._blobs}
        num_rows = len(next(iter(arrays.values()), ()))
        return f"{num_rows} rows (checksum {checksum_arrays(map(_sample_rows, arrays.values())):08x})"

    def get_state(self) -> dict[str, Any]:
        """Return the position of the next batch as JSON values."""
        return self._epochs.get_state()

    def set_state(self, state: Any) -> None:
        """Restore a position that `get_state` returned.

        Raises:
            DataError: if it is not a position, or a one-time iterator has already passed it.
        """
        self._epochs.set_state(state)
        self._pending_batches = []

    def close(self) -> None:
        """Close the iterator."""
        self._epochs.close()

    def shape_problems(self, batch: Mapping[str, np.ndarray]) -> Iterator[Problem]:
        """Yield a problem for each blob of a batch whose shape differs from the net's beyond the first axis.

        If no blob differs in this way, yield a problem for each blob whose batch size differs.
        """
        mismatched_shapes = {blob: spec.shape for blob, spec in self._blobs.items() if batch[blob].shape != spec.shape}
        mismatched_row_shapes = {
            blob: shape for blob, shape in mismatched_shapes.items() if batch[blob].shape[1:] != shape[1:]
        }
        for blob, shape in (mismatched_row_shapes or mismatched_shapes).items():
            message = (
                f"'{blob}' of the batch has shape {batch[blob].shape}, but the net is built for {shape} and cannot be "
                f"reshaped to {batch[blob].shape}"
            )
            yield Problem(f"{self._name}, {self._epochs.position}: {message}", self._file)

    def _name_arrays(self, batch: Any) -> dict[str, np.ndarray]:
        """Return a batch, or a part of its rows, as arrays in the blobs' dtypes, by blob name."""
        names, type_name = ", ".join(f"'{blob}'" for blob in self._blobs), type(batch).__name__
        if isinstance(batch, tuple | list):
            if len(batch) != len(self._blobs):
                self._raise_batch_problems(
                    [f"has {len(batch)} arrays, but the net has {len(self._blobs)} inputs: {names}"]
                )
            batch = dict(zip(self._blobs, batch, strict=True))
        if not isinstance(batch, Mapping):
            self._raise_batch_problems(
                [f"must be {{blob: array}}, or a tuple of arrays for {names}, not of type {type_name}"]
            )
        arrays, problems = {}, []
        for blob, spec in self._blobs.items():
            if blob not in batch:
                other_names = [name for name in batch if isinstance(name, str) and name not in self._blobs]
                available = ", ".join(map(repr, batch))
                problems.append(
                    f"has no '{blob}', only {available or 'an empty mapping'}{did_you_mean(blob, other_names)}"
                )
                continue
            array, problem = _convert_to_array(batch[blob])
            problem = problem or self._shape_problem(array, spec.shape)
            if problem:
                problems.append(f"'{blob}' {problem}")
            else:
                arrays[blob] = np.array(array, spec.dtype)  # a copy, as the caller may write to the original
        self._raise_batch_problems(problems)
        return arrays

    def _shape_problem(self, array: np.ndarray, shape: tuple[int, ...]) -> str | None:
        if remedy := shape_remedy(array.shape, shape):
            return f"has shape {array.shape}, but the net needs {shape}{remedy}"
        if array.ndim and not array.size:
            return f"is empty: its shape is {array.shape}"
        return None

    def _raise_batch_problems(self, problems: Iterable[str]) -> None:
        location = f"{self._name}, {self._epochs.position}"
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
    """Return an array, or rows from all over it if it is large."""
    if getattr(array, "nbytes", 0) <= _MAX_COMPARED_BYTES:
        return array
    step = max(1, len(array) // _NUM_COMPARED_ROWS)
    return np.stack([np.asarray(array[i]) for i in range(0, len(array), step)])


def _convert_to_array(value: Any) -> tuple[np.ndarray, str | None]:
    try:
        array = np.asarray(value)
    except Exception as error:  # any exception, such as a tensor on a GPU raises
        return np.zeros(
            ()
        ), f"cannot be converted to a NumPy array: {str(error).splitlines()[0] if str(error) else error!r}"
    if array.dtype.kind not in "biuf" and array.dtype.name != "bfloat16":
        return array, f"holds {array.dtype}, not numbers"
    return array, None
