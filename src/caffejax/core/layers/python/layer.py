"""The base class of Python layers that users write with Caffe's interface."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from typing import Any, SupportsIndex

from ....base.errors import ArgumentTypeError, OutOfRangeError, describe_type
from .blob import Blob


class BlobVec(list[Any]):
    """The list of the learnable blobs of a layer. It holds blobs only.

    Raises:
        TypeError: if an item is not a `Blob`, or an index not an integer or a slice.
        IndexError: if there is no item of this index.
    """

    def add_blob(self, *shape: int) -> None:
        """Append a blob of zeros with this shape."""
        self.append(Blob(*shape))

    def __getitem__(self, index: Any) -> Any:
        return super().__getitem__(self._check_index(index))

    def __setitem__(self, index: Any, value: Any) -> None:
        index = self._check_index(index)
        super().__setitem__(index, _check_blobs(value) if isinstance(index, slice) else _check_blob(value))

    def __delitem__(self, index: Any) -> None:
        super().__delitem__(self._check_index(index))

    def __iadd__(self, blobs: Iterable[Any]) -> BlobVec:  # type: ignore[misc]  # list + list is a list
        self.extend(blobs)
        return self

    def append(self, blob: Any) -> None:
        """Append a blob."""
        super().append(_check_blob(blob))

    def extend(self, blobs: Iterable[Any]) -> None:
        """Append several blobs."""
        super().extend(_check_blobs(blobs))

    def insert(self, index: SupportsIndex, blob: Any) -> None:
        """Insert a blob before an index."""
        super().insert(index, _check_blob(blob))

    def pop(self, index: SupportsIndex = -1) -> Any:
        """Remove and return the blob of an index."""
        return super().pop(self._check_index(index))

    def _check_index(self, index: Any) -> Any:
        if isinstance(index, slice):
            return index
        try:
            i = operator.index(index)
        except TypeError:
            raise ArgumentTypeError(f"a list of blobs takes an index or a slice, not {index!r}") from None
        if not -len(self) <= i < len(self):
            raise OutOfRangeError(f"there is no blob {i}; the layer has {len(self)}, counted from 0")
        return i


def _check_blob(value: Any) -> Blob:
    if not isinstance(value, Blob):
        raise ArgumentTypeError(
            f"a list of blobs takes blobs, not {describe_type(value)}; to change the values of a blob, write into its "
            "array, as in net.params[layer][0].data[...] = values"
        )
    return value


def _check_blobs(values: Any) -> list[Blob]:
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise ArgumentTypeError(f"blobs must be a list of blobs, not {describe_type(values)}")
    return [_check_blob(value) for value in values]


class Layer:
    """The base class of layers for `type: "Python"`. A class with these methods may also have a different base class.

    A layer defines `forward(bottom, top)`, which writes `top[i].data`, and optionally

    - `setup(bottom, top)`, which is called once, when the net is built. It adds learnable blobs and sets their values.
    - `reshape(bottom, top)`, which is called after `setup` and before every `forward`. It sets the shapes of the tops.
    - `backward(top, propagate_down, bottom)`, which writes `bottom[i].diff` where `propagate_down[i]` is true, and the
      diffs of `blobs`. These are zero before the call in training, where the diffs of several passes are summed. In
      `Net.backward` of Caffe's interface they are the diffs so far: `=` replaces them, and `+=` adds. Without
      `backward`, no gradient passes through the layer.

    `bottom` and `top` are lists of `Blob`.

    Attributes:
        param_str: the `param_str` of `python_param`.
        phase: 0 in a TRAIN net, 1 in a TEST net, like `caffe.TRAIN` and `caffe.TEST`. `str(phase)` gives the name.
        blobs: the learnable blobs.
    """

    def __init__(self, layer_param: Any = None) -> None:
        self.param_str = ""
        self.phase = 0
        self.blobs = BlobVec()

    @property
    def type(self) -> str:
        """The layer type in the prototxt, "Python"."""
        return "Python"

    def setup(self, bottom: list[Blob], top: list[Blob]) -> None:
        """Do nothing."""

    def reshape(self, bottom: list[Blob], top: list[Blob]) -> None:
        """Do nothing, so that the tops keep their shapes."""
