"""Makes configs/digits/digits_{train,test}_lmdb: scikit-learn's 8x8 digits as 28x28 grey Datums.

    python scripts/make_digits_lmdb.py [folder]

The 1797 digits are shuffled; the first 1437 are for training, the other 360 for testing.
"""

import sys
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits

from caffejax.base.databases import write_lmdb
from caffejax.core.schema import caffe_pb2

SEED = 20240229
TRAIN = 1437
SIZE = 28


def make_bicubic_matrix(size: int, new_size: int) -> np.ndarray:
    """Return the matrix (to, size) that resamples a row by cubic convolution with a = -1/2, as Pillow does.

    A matrix here rather than a library's resize: those differ from each other, and between versions.
    """
    centers = (np.arange(new_size) + 0.5) * size / new_size - 0.5
    x = np.abs(centers[:, None] - np.arange(size))
    near_weights, far_weights = (1.5 * x - 2.5) * x * x + 1, ((2.5 - 0.5 * x) * x - 4) * x + 2
    weights = np.where(x < 1, near_weights, np.where(x < 2, far_weights, 0))
    return weights / weights.sum(axis=1, keepdims=True)


def enlarge(digits: np.ndarray) -> np.ndarray:
    """Enlarge digits (N, 8, 8) with values 0 ... 16 to uint8 (N, 28, 28): along the rows, then the columns."""
    matrix = make_bicubic_matrix(digits.shape[-1], SIZE)
    rows = (digits * (255 / 16) @ matrix.T).astype(np.float32)  # Pillow keeps float32 in between
    pixels = (matrix @ rows.astype(np.float64)).astype(np.float32)
    return np.rint(pixels).clip(0, 255).astype(np.uint8)


def main(folder: Path) -> None:
    digits = load_digits()
    permutation = np.random.RandomState(SEED).permutation(len(digits.target))
    images, labels = enlarge(digits.images[permutation]), digits.target[permutation]
    for name, part in ("train", slice(TRAIN)), ("test", slice(TRAIN, None)):
        write_lmdb(
            folder / f"digits_{name}_lmdb",
            (
                (
                    b"%08d" % i,
                    caffe_pb2.Datum(
                        channels=1, height=SIZE, width=SIZE, data=image.tobytes(), label=label
                    ).SerializeToString(),
                )
                for i, (image, label) in enumerate(zip(images[part], labels[part].tolist(), strict=True))
            ),
        )


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parents[1] / "configs" / "digits")
