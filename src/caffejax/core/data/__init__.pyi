# The package's names: type checkers read them here, and lazy_loader. `as` has type checkers take a name for public.

from .data_layer import DataLayer as DataLayer
from .memory_data import ArraySource as ArraySource
from .prefetch import Batch as Batch
from .prefetch import Batches as Batches
from .prefetch import Pipeline as Pipeline
