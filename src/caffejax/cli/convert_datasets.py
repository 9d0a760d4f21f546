"""Commands that convert MNIST and CIFAR-10 from their authors' files to databases, as Caffe's tools do.

The arguments, their order, and the keys and datums that are written are the same as in Caffe.
"""

from __future__ import annotations

import argparse
import math
from struct import unpack_from
from typing import TYPE_CHECKING

from ..base.errors import DataError, Problem
from ..base.glog import log, start_logging
from ..base.paths import read_bytes
from . import flags
from .progress_bar import show_loop_progress

if TYPE_CHECKING:
    import numpy as np

_CIFAR_SHAPE = (3, 32, 32)
_IDX_CONTENTS = {1: "labels", 3: "images"}  # of MNIST's files, by their number of axes


class convert_mnist_data:  # noqa: N801  named like the command
    """Make a database of MNIST's images and labels, or of a different dataset in the same format (IDX)."""

    HELP = "make a database from MNIST's files"
    EXAMPLE = "caffejax convert_mnist_data train-images-idx3-ubyte train-labels-idx1-ubyte mnist_train_lmdb"

    @staticmethod
    def add_flags(parser: argparse.ArgumentParser) -> None:
        """Add the command's flags."""
        _add_mnist_arguments(parser)
        flags.add_backend_flag(parser)

    @staticmethod
    def run(options: argparse.Namespace) -> None:
        """Make the database."""
        start_logging()
        images, labels = _read_mnist(options)
        _write_database(options.backend, options.database, images[:, None], labels, key_digits=8)


class convert_mnist_siamese_data:  # noqa: N801
    """Make a database of random pairs of MNIST's images (two channels), with label 1 if their labels are equal."""

    HELP = "make a database of pairs of MNIST's images"
    EXAMPLE = "caffejax convert_mnist_siamese_data train-images-idx3-ubyte train-labels-idx1-ubyte pairs_leveldb"

    @staticmethod
    def add_flags(parser: argparse.ArgumentParser) -> None:
        """Add the command's flags."""
        _add_mnist_arguments(parser)
        flags.add_backend_flag(parser, "leveldb")  # the only format of Caffe's tool
        flags.add(parser, "seed", "the seed of the random pairs", type=flags.parse_count, default=0, metavar="N")

    @staticmethod
    def run(options: argparse.Namespace) -> None:
        """Make the database."""
        start_logging()
        import numpy as np

        images, labels = _read_mnist(options)
        pairs = np.random.default_rng(options.seed).integers(0, len(images), (len(images), 2))
        first_labels, second_labels = labels[pairs].T
        _write_database(
            options.backend, options.database, images, first_labels == second_labels, key_digits=8, channel_images=pairs
        )


class convert_cifar_data:  # noqa: N801
    """Make databases of CIFAR-10's training and test images, cifar10_train_DB_TYPE and cifar10_test_DB_TYPE."""

    HELP = "make databases from CIFAR-10's files"
    EXAMPLE = "caffejax convert_cifar_data cifar-10-batches-bin . lmdb"

    @staticmethod
    def add_flags(parser: argparse.ArgumentParser) -> None:
        """Add the command's flags."""
        parser.add_argument(
            "input", help="the folder with data_batch_1.bin, ..., test_batch.bin", metavar="INPUT_FOLDER"
        )
        parser.add_argument("output", help="the folder for the two databases", metavar="OUTPUT_FOLDER")
        parser.add_argument("db_type", help="the database format", choices=flags.DATABASES)

    @staticmethod
    def run(options: argparse.Namespace) -> None:
        """Make the databases."""
        start_logging()
        import numpy as np

        train_records = np.concatenate(
            [_read_cifar(f"{options.input}/data_batch_{number}.bin") for number in range(1, 6)]
        )
        test_records = _read_cifar(f"{options.input}/test_batch.bin")
        for name, log_name, records in ("train", "Training", train_records), ("test", "Testing", test_records):
            log.info("Writing %s data", log_name)
            database = f"{options.output}/cifar10_{name}_{options.db_type}"
            labels, pixels = records[:, 0].astype(np.int8), records[:, 1:]
            _write_database(options.db_type, database, pixels.reshape(-1, *_CIFAR_SHAPE), labels, key_digits=5)


def _add_mnist_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("images", help="the images, an IDX file", metavar="INPUT_IMAGE_FILE")
    parser.add_argument("labels", help="the labels, an IDX file", metavar="INPUT_LABEL_FILE")
    parser.add_argument("database", help="the folder to create", metavar="OUTPUT_DB_FILE")


def _read_mnist(options: argparse.Namespace) -> tuple[np.ndarray, np.ndarray]:
    """Return the images, uint8 (N, H, W), and the labels, int8 (N,), because Caffe stores labels as `char`."""
    import numpy as np

    images, labels = read_idx(options.images, 3), read_idx(options.labels, 1)
    if len(images) != len(labels):
        raise DataError(f"{options.images} has {len(images)} images, but {options.labels} has {len(labels)} labels")
    log.info("A total of %d items.", len(images))
    log.info("Rows: %d Cols: %d", *images.shape[1:])
    return images, labels.astype(np.int8)


def read_idx(path: str, num_axes: int) -> np.ndarray:
    """Return the array in a file of bytes in MNIST's format, IDX: labels (1 axis) or images (3 axes).

    Raises:
        DataError: if the file cannot be read, has a different format, is truncated or has no items; the message names
            the file.
    """
    import numpy as np

    data, magic, header_size = read_bytes(path, DataError), 0x800 + num_axes, 4 + 4 * num_axes
    if len(data) < header_size or unpack_from(">I", data) != (magic,):
        hint = "; it is compressed: unpack it with gunzip first" if data.startswith(b"\x1f\x8b") else ""
        raise DataError(
            Problem(
                f"is not an IDX file of {_IDX_CONTENTS[num_axes]}, which begins with the number {magic}{hint}", path
            )
        )
    shape = unpack_from(f">{num_axes}I", data, 4)
    num_values = math.prod(shape)
    if not 0 < num_values <= len(data) - header_size:
        sizes_text = " x ".join(map(str, shape))
        message = f"its header announces {sizes_text} bytes of data, but {len(data) - header_size} follow"
        raise DataError(Problem(message, path))
    return np.frombuffer(data, np.uint8, num_values, header_size).reshape(shape)


def _read_cifar(path: str) -> np.ndarray:
    """Return the records in a CIFAR-10 file, uint8 (N, 3073). Each row is a label, followed by an image's pixels."""
    import numpy as np

    data, record_size = read_bytes(path, DataError), 1 + math.prod(_CIFAR_SHAPE)
    if not data or len(data) % record_size:
        raise DataError(
            Problem(f"has {len(data)} bytes, which is not a multiple of the {record_size} bytes of an image", path)
        )
    return np.frombuffer(data, np.uint8).reshape(-1, record_size)


def _write_database(
    backend: str,
    database: str,
    images: np.ndarray,
    labels: np.ndarray,
    *,
    key_digits: int,
    channel_images: np.ndarray | None = None,
) -> None:
    """Write a database with a datum for each label.

    Args:
        backend: the format of the database.
        database: the folder of the database.
        images: uint8 (N, C, H, W), or (M, H, W) if `channel_images` is not None.
        labels: integers (N,).
        key_digits: the number of digits in each record's key, which is the number of the record.
        channel_images: for each datum, the indices of the images that are its channels, integers (N, C); None if datum
            n is image n.
    """
    from ..core.data.database import WRITERS
    from ..core.schema.caffe_pb2 import Datum

    with WRITERS[backend](database) as put, show_loop_progress(len(labels), "images") as advance:
        for index, label in enumerate(labels.tolist()):
            image = images[index if channel_images is None else channel_images[index]]
            channels, height, width = image.shape
            datum = Datum(channels=channels, height=height, width=width, data=image.tobytes(), label=int(label))
            put(b"%0*d" % (key_digits, index), datum.SerializeToString())
            advance()
    log.info("Processed %d files.", len(labels))
