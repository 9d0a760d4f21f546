"""LevelDB folders, read and written by caffejax itself.

caffejax has its own reader because the binding (plyvel) has no wheels for newer Pythons, and because LevelDB's code
locks and rewrites the folder that it opens, which prevents simultaneous readers and read-only folders.
"""

from .leveldb_reader import LevelDb
from .table_writer import leveldb_writer, write_leveldb

__all__ = ["LevelDb", "leveldb_writer", "write_leveldb"]
