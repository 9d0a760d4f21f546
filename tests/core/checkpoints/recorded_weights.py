"""Weights that Caffe recorded."""

from pathlib import Path

import numpy as np

GOLDEN = Path(__file__).resolve().parents[2] / "golden" / "weights"


def read_recorded_blobs(path: Path, prefix: str = "param") -> dict[str, list[np.ndarray]]:
    """`<prefix>/<layer>/<i>` of an npz, by layer."""
    blobs: dict[str, list[np.ndarray]] = {}
    with np.load(path) as archive:
        for key in sorted(key for key in archive if key.startswith(prefix + "/")):
            blobs.setdefault(key.split("/")[1], []).append(archive[key])
    return blobs
