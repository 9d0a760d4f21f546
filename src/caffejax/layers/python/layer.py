"""The base class of Python layers that users write with Caffe's interface."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from typing import Any

from .blob import Blob


class BlobVec(list[Blob]):
    """The learnable blobs of a layer.

    A pycaffe net replaces them with its own blobs (see `show`), so that writing to `net.layers[i].blobs` changes a
    parameter of the net. While a method of the layer runs, the list holds the layer's blobs.
    """

    def __init__(self, blobs: Iterable[Blob] = ()) -> None:
        super().__init__(blobs)
        self._layer_blobs: list[Blob] | None = None

    @property
    def layer_blobs(self) -> list[Blob]:
        """The blobs that the layer added."""
        return list(self) if self._layer_blobs is None else self._layer_blobs

    def show(self, blobs: Iterable[Blob]) -> None:
        """Replace the blobs with a net's, except while methods of the layer run."""
        self._layer_blobs = self.layer_blobs
        self[:] = blobs

    @contextlib.contextmanager
    def with_layer_blobs(self) -> Iterator[None]:
        """Return a context manager in which the list holds the layer's blobs."""
        if self._layer_blobs is None:
            yield
            return
        shown, layer_blobs = list(self), self._layer_blobs
        self[:], self._layer_blobs = layer_blobs, None
        try:
            yield
        finally:
            self[:], self._layer_blobs = shown, layer_blobs

    def add_blob(self, *shape: int) -> None:
        """Add a blob of zeros."""
        self.append(Blob(*shape))


class Layer:
    """Base class of a layer for `type: "Python"`; a class with another base is accepted if it has the methods.

    A layer defines `forward(bottom, top)`, which writes `top[i].data`, and optionally

    - `setup(bottom, top)`: called once, when the net is built; adds learnable blobs and sets their values;
    - `reshape(bottom, top)`: called after `setup` and before every `forward`; sets the shapes of the tops;
    - `backward(top, propagate_down, bottom)`: writes `bottom[i].diff` where `propagate_down[i]`, and the diffs of
      `blobs`, which are zero before the call; without it no gradient passes the layer.

    `bottom` and `top` are lists of `Blob`.

    Attributes:
        param_str: the `param_str` of `python_param`.
        phase: 0 in a TRAIN net, 1 in a TEST net, like `caffe.TRAIN` and `caffe.TEST`.
        blobs: the learnable blobs.
    """

    def __init__(self, layer_param: Any = None) -> None:
        self.param_str = ""
        self.phase = 0
        self.blobs = BlobVec()

    @property
    def type(self) -> str:
        """The type in the prototxt."""
        return "Python"

    def setup(self, bottom: list[Blob], top: list[Blob]) -> None:
        """Do nothing."""

    def reshape(self, bottom: list[Blob], top: list[Blob]) -> None:
        """Do nothing: the tops keep their shapes."""
