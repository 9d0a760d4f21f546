"""Layer types by Caffe's names. The registry imports the module of a type when the type is first requested."""

from .context import Context, LayerDefinition, ParamSpec, Phase
from .data_source import Position, Source, SourceSpec
from .implementation import LayerContext
from .registry import layer_type, layer_types, register, register_temporarily, type_of
from .types import (
    SAME_AS_BOTTOMS,
    ByChannel,
    Fed,
    Fusion,
    Gradient,
    Indices,
    LayerDocs,
    LayerTraits,
    LayerType,
    OnHost,
    PerLayer,
    Reads,
    Signature,
    Traced,
    Variants,
)

__all__ = [
    "SAME_AS_BOTTOMS",
    "ByChannel",
    "Context",
    "Fed",
    "Fusion",
    "Gradient",
    "Indices",
    "LayerContext",
    "LayerDefinition",
    "LayerDocs",
    "LayerTraits",
    "LayerType",
    "OnHost",
    "ParamSpec",
    "PerLayer",
    "Phase",
    "Position",
    "Reads",
    "Signature",
    "Source",
    "SourceSpec",
    "Traced",
    "Variants",
    "layer_type",
    "layer_types",
    "register",
    "register_temporarily",
    "type_of",
]
