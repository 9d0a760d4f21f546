"""Layer types by Caffe's names. The registry imports the module of a type when the type is first requested."""

from .context import Context as Context
from .context import LayerDefinition as LayerDefinition
from .context import ParamSpec as ParamSpec
from .context import Phase as Phase
from .data_source import Position as Position
from .data_source import Source as Source
from .data_source import SourceSpec as SourceSpec
from .declaration import Declaration as Declaration
from .declaration import declare as declare
from .declaration import register as register
from .registry import layer_type as layer_type
from .registry import layer_types as layer_types
from .registry import register_temporarily as register_temporarily
from .registry import type_of as type_of
from .row_padding import PaddedRows as PaddedRows
from .types import CallerInput as CallerInput
from .types import ChannelAffine as ChannelAffine
from .types import HostFunction as HostFunction
from .types import Indices as Indices
from .types import LayerTraits as LayerTraits
from .types import LayerType as LayerType
from .types import SourceInput as SourceInput
from .types import TopFiller as TopFiller
from .types import Traced as Traced
from .types import Variants as Variants
