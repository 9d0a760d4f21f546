"""Records in LevelDB folders: those that Caffe wrote, and some of our own."""

from pathlib import Path

import numpy as np
import pytest

try:
    import plyvel
except ImportError:
    plyvel = None

needs_plyvel = pytest.mark.skipif(plyvel is None, reason="the LevelDB library has no wheel for this Python")
GOLDEN = Path(__file__).parents[2] / "golden" / "data"
GOLDEN_FOLDERS = ["leveldb_raw", "leveldb_compacted", "leveldb_snappy"]


def make_value(seed: int, size: int, compressible: bool = False) -> bytes:
    """Bytes that differ for each seed."""
    bits = 1 if compressible else 8
    return np.random.default_rng(seed).integers(0, 1 << bits, size, np.uint8).tobytes()


RECORDS = [(b"%05d_image%d" % (i, i % 7), make_value(i, 1000 + i % 50, i % 3 == 0)) for i in range(500)]
