"""Data layers: what feeds a net from disk. Importing this registers them."""

from .hdf5 import open_hdf5_data
from .lmdb import Lmdb, write_lmdb
from .pipeline import Batches, Pipeline
from .source import open_data

__all__ = ["Batches", "Lmdb", "Pipeline", "open_data", "open_hdf5_data", "write_lmdb"]
