"""Weights that Caffe recorded."""

from pathlib import Path

import numpy as np

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "weights"


def params(path: Path, prefix: str = "param") -> dict[str, list[np.ndarray]]:
    """`<prefix>/<layer>/<i>` of an npz, by layer."""
    blobs: dict[str, list[np.ndarray]] = {}
    with np.load(path) as recorded:
        for key in sorted(key for key in recorded if key.startswith(prefix + "/")):
            blobs.setdefault(key.split("/")[1], []).append(recorded[key])
    return blobs
