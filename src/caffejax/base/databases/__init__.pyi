# The package's names: type checkers read them here, and lazy_loader. `as` has type checkers take a name for public.

from .atomic_folder import PutFn as PutFn
from .leveldb import LevelDb as LevelDb
from .leveldb import leveldb_writer as leveldb_writer
from .leveldb import write_leveldb as write_leveldb
from .lmdb import Lmdb as Lmdb
from .lmdb import lmdb_writer as lmdb_writer
from .lmdb import write_lmdb as write_lmdb
