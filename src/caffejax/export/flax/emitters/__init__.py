"""What writes layers of each type, a family to a file. Importing this registers them all."""

from . import affine, arithmetic, convolution, moving, neuron, normalization, pooling, product, resizing

__all__ = [
    "affine",
    "arithmetic",
    "convolution",
    "moving",
    "neuron",
    "normalization",
    "pooling",
    "product",
    "resizing",
]
