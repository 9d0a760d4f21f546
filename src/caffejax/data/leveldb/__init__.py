"""LevelDB folders, read and written by caffejax itself.

Its own reader, because the binding (plyvel) has no wheels for the newer Pythons, and because LevelDB's own code
locks and rewrites the folder it opens: two readers at once, or a folder that may not be written, are beyond it.
"""

from .leveldb_reader import LevelDb
from .table_writer import leveldb_writer, write_leveldb

__all__ = ["LevelDb", "leveldb_writer", "write_leveldb"]
