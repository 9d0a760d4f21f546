"""Weights in .npz files, as `caffejax convert` reads them."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from caffejax.checkpoints.weight_formats import format_of

from ..harness import Files, Harness, mutate_one_file
from ..mutators.zips import change_archive
from ._weights import BLOBS, same_array


def _intact() -> list[Files]:
    sets: list[Files] = []
    for write in (np.savez, np.savez_compressed):
        buffer = io.BytesIO()
        write(buffer, **{f"{name}/{i}": blob for name, blobs in BLOBS.items() for i, blob in enumerate(blobs)})
        sets.append({"weights.npz": buffer.getvalue()})
    return sets


def _read(folder: Path) -> Any:
    path = str(folder / "weights.npz")
    return format_of(path).read(path)


def _complaint(damaged: Files, intact: Files, expected: Any, actual: Any) -> str | None:
    """Return a complaint if a member with an unchanged checksum has another content."""
    sums = [
        {(info.filename, info.CRC) for info in zipfile.ZipFile(io.BytesIO(files["weights.npz"])).infolist()}
        for files in (damaged, intact)
    ]
    unchanged = {name.removesuffix(".npy").rpartition("/")[::2] for name, _ in sums[0] & sums[1]}
    return next(
        (
            f"numbers changed: layer '{name}', blob {i}"
            for name, i in sorted(unchanged)
            if not same_array(expected[name][int(i)], actual[name][int(i)])
        ),
        None,
    )


HARNESS = Harness(_intact, mutate_one_file(change_archive), _read, _complaint)
