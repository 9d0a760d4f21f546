"""MNIST's and CIFAR-10's files, which commands convert to databases."""

from __future__ import annotations

import struct
from argparse import Namespace
from pathlib import Path
from random import Random
from typing import Any

from caffejax.base.databases import Lmdb
from caffejax.cli.convert_datasets import convert_cifar_data, convert_mnist_data
from caffejax.core.schema.caffe_pb2 import Datum

from ..harness import Files, Harness, mutate_one_file
from ..mutators.byte_mutations import change_bytes, damage

_IMAGE_SIZE = 3 * 32 * 32
_CIFAR_NAMES = [*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin"]


def _make_intact_sets() -> list[Files]:
    rng = Random(0)
    images = struct.pack(">4I", 2051, 5, 4, 3) + rng.randbytes(5 * 4 * 3)
    labels = struct.pack(">2I", 2049, 5) + rng.randbytes(5)
    return [{"images": images, "labels": labels}, {name: rng.randbytes(2 * (1 + _IMAGE_SIZE)) for name in _CIFAR_NAMES}]


def _mutate(rng: Random, content: bytes) -> bytes:
    return change_bytes(rng, content[:16]) + content[16:] if rng.random() < 0.5 else damage(rng, content)


def _read(folder: Path) -> Any:
    if (folder / "images").exists():
        paths = {name: str(folder / name) for name in ("images", "labels", "database")}
        convert_mnist_data.run(Namespace(**paths, backend="lmdb"))
        return _read_records(folder / "database")
    convert_cifar_data.run(Namespace(input=str(folder), output=str(folder), db_type="lmdb"))
    return [record for name in ("train", "test") for record in _read_records(folder / f"cifar10_{name}_lmdb")]


def _read_records(database: Path) -> list[tuple[int, bytes]]:
    datums = [Datum.FromString(value) for _, value in Lmdb(database)]
    return [(datum.label % 256, datum.data) for datum in datums]


def _describe_difference(damaged: Files, intact: Files, expected_values: Any, actual: Any) -> str | None:
    if "images" in damaged:
        _, num_images, height, width = struct.unpack_from(">4I", damaged["images"])
        size, pixels, labels = height * width, damaged["images"][16:], damaged["labels"][8:]
        expected = [(labels[i], pixels[i * size : (i + 1) * size]) for i in range(num_images)]
    else:
        rows = b"".join(damaged[name] for name in _CIFAR_NAMES)
        starts = range(0, len(rows), 1 + _IMAGE_SIZE)
        expected = [(rows[offset], rows[offset + 1 : offset + 1 + _IMAGE_SIZE]) for offset in starts]
    return None if actual == expected else "other than the file: labels or pixels"


HARNESS = Harness(_make_intact_sets, mutate_one_file(_mutate), _read, _describe_difference)
