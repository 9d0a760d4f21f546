"""Caffe's Python interface: `import caffejax.pycaffe as caffe`."""

from ._blob import Blob
from ._layer import Layer

__all__ = ["Blob", "Layer"]
