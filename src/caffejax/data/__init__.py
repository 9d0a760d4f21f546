"""Data layers: what feeds a net from disk. Importing this registers them."""

from . import hdf5_output  # noqa: F401  registers its type
from .hdf5 import hdf5_batches
from .image_data import image_batches
from .leveldb import LevelDb, leveldb_writer, write_leveldb
from .lmdb import Lmdb, lmdb_writer, write_lmdb
from .memory import ArraySource
from .pipeline import Batch, Batches, Pipeline
from .source import data_batches
from .window_data import window_batches

__all__ = [
    "ArraySource",
    "Batch",
    "Batches",
    "LevelDb",
    "Lmdb",
    "Pipeline",
    "data_batches",
    "hdf5_batches",
    "image_batches",
    "leveldb_writer",
    "lmdb_writer",
    "window_batches",
    "write_leveldb",
    "write_lmdb",
]
