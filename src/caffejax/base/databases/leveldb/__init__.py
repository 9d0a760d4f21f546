"""LevelDB folders, read and written without LevelDB's library.

caffejax has its own reader for two reasons. The Python binding (plyvel) has no wheels for newer Pythons. LevelDB's
library locks and rewrites the folder that it opens, which rules out simultaneous readers and read-only folders.
"""

from .leveldb_reader import LevelDb as LevelDb
from .table_writer import leveldb_writer as leveldb_writer
from .table_writer import write_leveldb as write_leveldb
