"""The base of layers that users write in Python, with Caffe's interface."""

from __future__ import annotations

from typing import Any

from .blob import Blob


class BlobVec(list[Blob]):
    """A layer's learnable blobs."""

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
