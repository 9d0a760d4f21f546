# The package's names: type checkers read them here, and lazy_loader. `as` has type checkers take a name for public.

from .data_layer import DataLayer as DataLayer
from .leveldb import LevelDb as LevelDb
from .leveldb import leveldb_writer as leveldb_writer
from .leveldb import write_leveldb as write_leveldb
from .lmdb import Lmdb as Lmdb
from .lmdb import lmdb_writer as lmdb_writer
from .lmdb import write_lmdb as write_lmdb
from .memory_data import ArraySource as ArraySource
from .prefetch import Batch as Batch
from .prefetch import Batches as Batches
from .prefetch import Pipeline as Pipeline
