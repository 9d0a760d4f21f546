"""Layer types by Caffe's names. Importing this package registers all that need no files."""

from importlib import import_module
from pkgutil import walk_packages

from .context import Context, ParamSpec, Phase, Site
from .registry import layer_type, layer_types, register, registered, type_of
from .runs import Company
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
    Variants,
)

__all__ = [
    "SAME_AS_BOTTOMS",
    "ByChannel",
    "Company",
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
    "Variants",
    "layer_type",
    "layer_types",
    "register",
    "registered",
    "type_of",
]

for _module in walk_packages(
    __path__, f"{__name__}."
):  # a file here is all that a type touches: importing it registers it
    import_module(_module.name)
