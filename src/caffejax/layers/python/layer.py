"""The base of layers that users write in Python, with Caffe's interface."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from typing import Any

from .blob import Blob


class BlobVec(list[Blob]):
    """A layer's learnable blobs.

    pycaffe's nets put their own in place of them, see `show`: what is written to `net.layers[i].blobs` is then a param
    of the net. While a method of the layer runs, it finds the layer's own.
    """

    def __init__(self, blobs: Iterable[Blob] = ()) -> None:
        super().__init__(blobs)
        self._own: list[Blob] | None = None

    @property
    def own(self) -> list[Blob]:
        """The blobs that the layer added."""
        return list(self) if self._own is None else self._own

    def show(self, blobs: Iterable[Blob]) -> None:
        """Hold a net's blobs, but for the layer's own methods."""
        self._own = self.own
        self[:] = blobs

    @contextlib.contextmanager
    def as_own(self) -> Iterator[None]:
        """Hold the layer's own blobs meanwhile."""
        if self._own is None:
            yield
            return
        shown, own = list(self), self._own
        self[:], self._own = own, None
        try:
            yield
        finally:
            self[:], self._own = shown, own

    def add_blob(self, *shape: int) -> None:
        """Add a blob of zeros."""
        self.append(Blob(*shape))


class Layer:
    """Base of a layer for `type: "Python"`; a class of another base will do too, if it has the methods.

    A layer defines `forward(bottom, top)`, which writes `top[i].data`, and as far as it needs them

    * `setup(bottom, top)`: called once, when the net is built; adds learnable blobs and gives them their values;
    * `reshape(bottom, top)`: called after `setup` and before every `forward`; gives the tops their shapes;
    * `backward(top, propagate_down, bottom)`: writes `bottom[i].diff` where `propagate_down[i]`, and the diffs of
      `blobs`, both zero before; without it no gradient can pass the layer.

    `bottom` and `top` are lists of `Blob`.

    Attributes:
        param_str: the text that `python_param` gives the layer.
        phase: 0 in a TRAIN net, 1 in a TEST net, as `caffe.TRAIN` and `caffe.TEST`.
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
        """Leave the tops as they are."""
