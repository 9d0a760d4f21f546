"""Blobs synchronized between host and device, like Caffe's SyncedMemory.

JAX arrays are immutable, but a caller may write to the NumPy array that `blob.data` returns at any time. A `Memory`
therefore has one buffer on the host. It treats the buffer as changed if a view was returned since the device last read
the buffer, or if a caller still holds a view. When the net computes a new value, these views are updated in place: as
in Caffe, they share memory with the net.
"""

from __future__ import annotations

import itertools
import math
import sys
from typing import Any, Protocol

import jax
import numpy as np

from ..core.layers.python.blob import Blob
from ..core.ops.compilation import full

Shape = tuple[int, ...]

_FREQUENT_READS = 2  # after this number of consecutive values that were read, every pass returns the blob

_versions = itertools.count()


def next_version() -> int:
    """Return the next version number, which is larger than all earlier ones."""
    return next(_versions)


class DeferredComputation(Protocol):
    """A computation that runs when one of its results is read."""

    def resolve(self) -> None:
        """Compute the results, and pass each result to `fill` of the `Memory` that it was deferred for."""
        ...


class Memory:
    """One float32 array with a copy on the host and a copy on the device. It is zero until it is written to.

    Attributes:
        version: the version of the value, from `next_version`, which counts the versions of all memories.
        was_read: True if the current value has been read on the host.
        read_streak: the number of consecutive values that were read.
    """

    __slots__ = (
        "_buffer",
        "_deferred",
        "_device_array",
        "_is_exposed",
        "_is_on_host",
        "read_streak",
        "version",
        "was_read",
    )

    def __init__(self, array: jax.Array | None = None) -> None:
        self._buffer = np.zeros(0, np.float32)
        self._device_array = array
        self._is_on_host = False  # True if the buffer has the newest value; a buffer without a value is zero
        self._is_exposed = False  # True if a caller may have written to a view of the buffer
        self._deferred: DeferredComputation | None = None
        self.version = next_version()
        self.was_read = False
        self.read_streak = 0

    @property
    def has_views(self) -> bool:
        """True if a view of the host's buffer exists. A view is detected by its reference to the buffer."""
        return sys.getrefcount(self._buffer) > _BASE_REFERENCES

    @property
    def is_zero(self) -> bool:
        """True if the value was never set or was cleared, so it is known to be zero without reading it."""
        return self._device_array is None and not self._is_on_host and self._deferred is None

    def view(self, shape: Shape) -> np.ndarray:
        """Return a view of the host's buffer in this shape, after copying the newest value to the buffer."""
        self.was_read = True
        count = math.prod(shape)
        self._copy_to_host(count)
        self._is_exposed = True
        return self._buffer[:count].reshape(shape)

    def get_array(self, shape: Shape, device: jax.Device) -> jax.Array:
        """Return the newest value as a JAX array with this shape on `device`."""
        if self._device_array is not None and not self._is_on_host and self._device_array.shape == shape:
            return self._device_array
        if self._deferred is not None:
            self._deferred.resolve()
        if self.is_zero:
            return full(shape, 0, device=device)
        may_have_changed = self._is_on_host and self._is_exposed
        if may_have_changed or self._device_array is None or self._device_array.shape != shape:
            count = math.prod(shape)
            self._copy_to_host(count)
            self._device_array = jax.device_put(_copy_aligned(self._buffer[:count]).reshape(shape), device)
            self._is_exposed = self.has_views  # a caller that holds a view may write to it and then drop it unnoticed
            self.version = next_version()
        return self._device_array

    def store(self, array: jax.Array) -> None:
        """Store a new value and update existing views."""
        self._device_array, self._deferred = array, None
        self._is_on_host = self._is_exposed = self.was_read = False
        self.version = next_version()
        self._refresh()

    def defer(self, computation: DeferredComputation) -> None:
        """Store a deferred value, which `computation` computes when it is read."""
        self._device_array, self._deferred = None, computation
        self._is_on_host = self._is_exposed = self.was_read = False
        self.version = next_version()

    def fill(self, computation: DeferredComputation, array: jax.Array) -> None:
        """Store the value that the deferred `computation` has computed, unless a new value was stored since `defer`."""
        if self._deferred is computation:
            self._device_array, self._deferred = array, None

    def clear(self) -> None:
        """Set the value to zero."""
        self._device_array = self._deferred = None
        self._is_on_host = self._is_exposed = False
        self.version = next_version()
        self._refresh()

    def move(self, device: jax.Device) -> None:
        """Move the device's copy, if there is one, to `device`."""
        if self._device_array is not None:
            self._device_array = jax.device_put(self._device_array, device)

    def update_read_prediction(self) -> bool:
        """Record whether the last value was read, and return whether the next value is likely to be read.

        Call it once for each value.
        """
        if self.was_read:
            self.read_streak += 1
        elif self.read_streak < _FREQUENT_READS:
            self.read_streak = 0
        return self.read_streak >= _FREQUENT_READS or self.has_views

    def current_version(self) -> int:
        """Return the version of the value. It is new if the host's buffer has changed since the device read it."""
        may_have_changed = self._device_array is not None and self._is_on_host and self._is_exposed
        if may_have_changed and not self._buffer_equals_array():
            self._device_array = None
            self.version = next_version()
        return self.version

    def _buffer_equals_array(self) -> bool:
        array = np.asarray(self._device_array).reshape(-1)
        buffer = self._buffer[: array.size]
        return bool(np.array_equal(buffer.view(np.int32), array.view(np.int32)))  # compares bits, because NaN != NaN

    def _refresh(self) -> None:
        """Copy the newest value to the host's buffer if a view of the buffer exists."""
        if not self._is_on_host and self.has_views:
            self._copy_to_host(0)
            self._is_exposed = True

    def _copy_to_host(self, count: int) -> None:
        """Copy the newest value to the host's buffer, and enlarge the buffer to at least `count` elements."""
        if self._deferred is not None:
            self._deferred.resolve()
        size = max(count, 0 if self._device_array is None or self._is_on_host else self._device_array.size)
        if self._buffer.size < size:
            old_buffer, self._buffer = self._buffer, np.zeros(size, np.float32)
            if self._is_on_host:
                self._buffer[: old_buffer.size] = old_buffer
        if self._is_on_host:
            return
        if self._device_array is None:
            self._buffer.fill(0)
        else:
            self._buffer[: self._device_array.size] = np.asarray(self._device_array).reshape(-1)
        self._is_on_host = True


class SyncedBlob(Blob):
    """A blob of a net, synchronized between host and device.

    Args:
        shape: the blob's shape.
        data, diff: memories, which may be shared with other blobs; default: new memories.
    """

    def __init__(self, shape: Shape, data: Memory | None = None, diff: Memory | None = None) -> None:
        super().__init__(*shape)
        self.data_memory = data or Memory()
        self.diff_memory = diff or Memory()

    @property
    def is_shared(self) -> bool:
        """True, because the memory belongs to a net."""
        return True

    def share_memory(self, other: Blob) -> None:
        """Use the memory of another blob of a net from now on, with its shape."""
        assert isinstance(other, SyncedBlob)
        self.data_memory, self.diff_memory, self._shape = other.data_memory, other.diff_memory, other.shape

    def get_data(self, device: jax.Device) -> jax.Array:
        """Return the data as a JAX array on `device`."""
        return self.data_memory.get_array(self._shape, device)

    def get_diff(self, device: jax.Device) -> jax.Array:
        """Return the diff as a JAX array on `device`."""
        return self.diff_memory.get_array(self._shape, device)

    def _view(self, which: str) -> np.ndarray:
        memory = self.data_memory if which == "data" else self.diff_memory
        return memory.view(self._shape)


def _copy_aligned(array: np.ndarray) -> Any:
    """Return a copy of a float32 array, aligned to 64 bytes so that JAX on a CPU uses it without another copy."""
    buffer = np.empty(array.nbytes + 64, np.uint8)
    start = -buffer.ctypes.data % 64
    copy = buffer[start : start + array.nbytes].view(np.float32)
    copy[...] = array
    return copy


def _count_references() -> int:
    """Return the reference count of a buffer without views."""
    memory = Memory()
    return sys.getrefcount(memory._buffer)


_BASE_REFERENCES = _count_references()
