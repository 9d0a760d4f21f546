"""The base class of Python layers that users write with Caffe's interface."""

from __future__ import annotations

from typing import Any

from .blob import Blob


class BlobVec(list[Any]):
    """The list of the learnable blobs of a layer."""

    def add_blob(self, *shape: int) -> None:
        """Append a blob of zeros with this shape."""
        self.append(Blob(*shape))


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
