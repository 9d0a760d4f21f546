"""Data layers: what feeds a net from disk. Importing this registers them."""

from .hdf5 import open_hdf5_data
from .lmdb import Lmdb, write_lmdb
from .prefetch import Prefetcher
from .source import open_data

__all__ = ["Lmdb", "Prefetcher", "open_data", "open_hdf5_data", "write_lmdb"]
