"""LMDB folders: read by caffejax itself, written by the reference binding.

Its own reader, because liblmdb trusts what it maps into memory: a damaged page, or a file that is cut while it is read,
ends the process.
"""

from .reader import Lmdb
from .writer import lmdb_writer, write_lmdb

__all__ = ["Lmdb", "lmdb_writer", "write_lmdb"]
