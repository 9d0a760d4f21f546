"""Weights in .npz files, as `caffejax convert` reads them."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from caffejax.core.checkpoints.weight_formats import FORMATS

from ..harness import Files, Harness, mutate_one_file
from ..mutators.zips import change_archive
from ._weights import BLOBS, are_equal_arrays


def _make_intact_sets() -> list[Files]:
    intact_sets: list[Files] = []
    for write in (np.savez, np.savez_compressed):
        buffer = io.BytesIO()
        write(buffer, **{f"{name}/{i}": blob for name, blobs in BLOBS.items() for i, blob in enumerate(blobs)})
        intact_sets.append({"weights.npz": buffer.getvalue()})
    return intact_sets


def _read(folder: Path) -> Any:
    return FORMATS[".npz"].read(str(folder / "weights.npz"))


def _describe_difference(damaged: Files, intact: Files, expected: Any, actual: Any) -> str | None:
    """Return a message if a member with an unchanged checksum has another content."""
    checksums = [
        {(info.filename, info.CRC) for info in zipfile.ZipFile(io.BytesIO(files["weights.npz"])).infolist()}
        for files in (damaged, intact)
    ]
    unchanged_names = {name.removesuffix(".npy").rpartition("/")[::2] for name, _ in checksums[0] & checksums[1]}
    return next(
        (
            f"numbers changed: layer '{name}', blob {i}"
            for name, i in sorted(unchanged_names)
            if not are_equal_arrays(expected[name][int(i)], actual[name][int(i)])
        ),
        None,
    )


HARNESS = Harness(_make_intact_sets, mutate_one_file(change_archive), _read, _describe_difference)
