"""Layer types by Caffe's names. Importing this package registers all that need no files."""

from . import (
    accuracy,
    affine,
    convolution,
    cross_entropy,
    distance,
    eltwise,
    embed,
    hinge,
    inner_product,
    inputs,
    lrn,
    neuron,
    normalization,
    pooling,
    shape,
    softmax,
)
from .registry import (
    SAME_AS_BOTTOMS,
    Blob,
    Context,
    LayerType,
    Source,
    layer_type,
    layer_types,
    register,
    register_input,
    register_source,
)

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

# what the imports above are for: registration
_FAMILIES = (
    accuracy,
    affine,
    convolution,
    cross_entropy,
    distance,
    eltwise,
    embed,
    hinge,
    inner_product,
    inputs,
    lrn,
    neuron,
    normalization,
    pooling,
    shape,
    softmax,
)
