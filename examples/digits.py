"""What the other examples share: the digits of configs/digits as arrays, and a check of what they read."""

from pathlib import Path

import numpy as np

import caffejax

CONFIGS = Path(__file__).parents[1] / "configs"


def load_digits(part: str) -> tuple[np.ndarray, np.ndarray]:
    """Return images (N, 1, 28, 28), from 0 to 1, and labels (N,) of a part: train or test."""
    database = caffejax.Lmdb(CONFIGS / "digits" / f"digits_{part}_lmdb")
    images, labels = zip(
        *(caffejax.read_datum(value) for _, value in database.read_range(0, len(database))), strict=True
    )
    return np.float32(images) / 256, np.array(labels)


def require_files(*names: str) -> None:
    """Exit with a message if files that lenet_from_arrays.py writes are not in the working directory."""
    missing = [name for name in names if not Path(name).exists()]
    if missing:
        raise SystemExit(f"{' and '.join(missing)} not found here: run lenet_from_arrays.py first, in this folder")
