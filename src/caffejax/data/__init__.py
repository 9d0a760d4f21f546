"""Data layers: what feeds a net from disk. Importing this registers them."""

from .hdf5 import open_hdf5_data
from .image_data import open_image_data
from .leveldb import LevelDb, leveldb_writer, write_leveldb
from .lmdb import Lmdb, lmdb_writer, write_lmdb
from .pipeline import Batches, Pipeline
from .source import open_data

__all__ = [
    "Batches",
    "LevelDb",
    "Lmdb",
    "Pipeline",
    "leveldb_writer",
    "lmdb_writer",
    "open_data",
    "open_hdf5_data",
    "open_image_data",
    "write_leveldb",
    "write_lmdb",
]
