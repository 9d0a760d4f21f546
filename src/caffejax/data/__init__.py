"""Data layers and their sources. Importing this registers the layers."""

from . import hdf5_output  # noqa: F401  registers its type
from .annotated.annoset import write_annotated
from .annotated_data import look_at_annotated_data, open_annotated_data
from .data_layer import look_at_data, open_data
from .dense_image_data import look_at_dense_image_data, open_dense_image_data
from .hdf5_data import look_at_hdf5_data, open_hdf5_data
from .image_data import look_at_image_data, open_image_data
from .image_labelmap_data import look_at_image_labelmap_data, open_image_labelmap_data
from .image_seg_data import look_at_image_seg_data, open_image_seg_data
from .leveldb import LevelDb, leveldb_writer, write_leveldb
from .lmdb import Lmdb, lmdb_writer, write_lmdb
from .memory import ArraySource
from .pipeline import Batch, Batches, Pipeline
from .video_data import look_at_video_data, open_video_data
from .window_data import look_at_window_data, open_window_data

__all__ = [
    "ArraySource",
    "Batch",
    "Batches",
    "LevelDb",
    "Lmdb",
    "Pipeline",
    "leveldb_writer",
    "lmdb_writer",
    "look_at_annotated_data",
    "look_at_data",
    "look_at_dense_image_data",
    "look_at_hdf5_data",
    "look_at_image_data",
    "look_at_image_labelmap_data",
    "look_at_image_seg_data",
    "look_at_video_data",
    "look_at_window_data",
    "open_annotated_data",
    "open_data",
    "open_dense_image_data",
    "open_hdf5_data",
    "open_image_data",
    "open_image_labelmap_data",
    "open_image_seg_data",
    "open_video_data",
    "open_window_data",
    "write_annotated",
    "write_leveldb",
    "write_lmdb",
]
