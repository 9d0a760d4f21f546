"""Data layers: what feeds a net from disk. Importing this registers them."""

from .hdf5 import open_hdf5_data
from .hdf5_output import hdf5_output
from .image_data import open_image_data
from .leveldb import LevelDb, leveldb_writer, write_leveldb
from .lmdb import Lmdb, lmdb_writer, write_lmdb
from .memory import ArraySource
from .pipeline import Batch, Batches, Pipeline
from .source import open_data
from .window_data import open_window_data

__all__ = [
    "ArraySource",
    "Batch",
    "Batches",
    "LevelDb",
    "Lmdb",
    "Pipeline",
    "hdf5_output",
    "leveldb_writer",
    "lmdb_writer",
    "open_data",
    "open_hdf5_data",
    "open_image_data",
    "open_window_data",
    "write_leveldb",
    "write_lmdb",
]
