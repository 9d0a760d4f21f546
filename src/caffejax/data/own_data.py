"""What feeds Input layers from data of the user's own: checked, in the blobs' dtype, by name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from ..errors import DataError, Problem, did_you_mean
from ..graph import Graph
from .epochs import Data, Epochs
from .shapes import dims


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
