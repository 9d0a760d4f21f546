"""Layer types by Caffe's names. The registry imports the module of a type when the type is first requested."""

from .context import Context, LayerDefinition, ParamSpec, Phase
from .data_source import Position, Source, SourceSpec
from .declaration import Declaration, declare, register
from .layer_kinds import LayerContext
from .registry import layer_type, layer_types, register_temporarily, type_of
from .row_padding import PaddedRows
from .types import (
    SAME_AS_BOTTOMS,
    CallerInput,
    ChannelAffine,
    Gradient,
    HostFunction,
    Indices,
    LayerDocs,
    LayerTraits,
    LayerType,
    PerLayer,
    Signature,
    SourceInput,
    TopFiller,
    Traced,
    Variants,
)

__all__ = [
    "SAME_AS_BOTTOMS",
    "CallerInput",
    "ChannelAffine",
    "Context",
    "Declaration",
    "Gradient",
    "HostFunction",
    "Indices",
    "LayerContext",
    "LayerDefinition",
    "LayerDocs",
    "LayerTraits",
    "LayerType",
    "PaddedRows",
    "ParamSpec",
    "PerLayer",
    "Phase",
    "Position",
    "Signature",
    "Source",
    "SourceInput",
    "SourceSpec",
    "TopFiller",
    "Traced",
    "Variants",
    "declare",
    "layer_type",
    "layer_types",
    "register",
    "register_temporarily",
    "type_of",
]
