"""Layer types by Caffe's names. Importing this package registers all that need no files."""

from . import (  # noqa: F401  importing them registers their types
    accuracy,
    affine,
    convolution,
    cross_entropy,
    deconvolution,
    distance,
    eltwise,
    embed,
    filtering,
    hinge,
    im2col,
    indexing,
    inner_product,
    inputs,
    lrn,
    lstm,
    neuron,
    normalization,
    pooling,
    recurrent,
    reduction,
    shape,
    softmax,
    spp,
)
from .context import Blob, Context, Source
from .registry import SAME_AS_BOTTOMS, LayerType, layer_type, layer_types, register, register_input, register_source

__all__ = [
    "SAME_AS_BOTTOMS",
    "Blob",
    "Context",
    "LayerType",
    "Source",
    "layer_type",
    "layer_types",
    "register",
    "register_input",
    "register_source",
]
