"""Caffe's Python interface: `import caffejax.pycaffe as caffe`."""

from ._blob import Blob

__all__ = ["Blob"]
