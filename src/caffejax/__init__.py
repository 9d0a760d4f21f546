"""caffejax: Caffe models on JAX."""

from ._version import __version__

__all__ = ["__version__"]
