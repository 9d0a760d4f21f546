"""Layer types by Caffe's names. Importing this package registers all that need no files."""

from importlib import import_module
from pkgutil import iter_modules

from .context import Context, ParamSpec, Phase, Site
from .registry import layer_type, layer_types, register, registered
from .source import Look, Position, Source
from .types import (
    SAME_AS_BOTTOMS,
    ByChannel,
    Facts,
    Fed,
    Fusion,
    Gradient,
    Indices,
    LayerType,
    OnHost,
    PerLayer,
    Reads,
    Signature,
    Traced,
)

__all__ = [
    "SAME_AS_BOTTOMS",
    "ByChannel",
    "Context",
    "Facts",
    "Fed",
    "Fusion",
    "Gradient",
    "Indices",
    "LayerType",
    "Look",
    "OnHost",
    "ParamSpec",
    "PerLayer",
    "Phase",
    "Position",
    "Reads",
    "Signature",
    "Site",
    "Source",
    "Traced",
    "layer_type",
    "layer_types",
    "register",
    "registered",
]

for _module in iter_modules(__path__):  # a file here is all that a layer type touches: importing it registers it
    import_module(f"{__name__}.{_module.name}")
