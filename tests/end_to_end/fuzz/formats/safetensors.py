"""Weights in .safetensors files, as `caffejax convert` reads them."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
from safetensors.numpy import save

from caffejax.core.checkpoints.weight_formats import FORMATS

from ..harness import Files, Harness, mutate_one_file
from ..mutators.byte_mutations import damage
from ..mutators.json_trees import change_json
from ..mutators.numbers import draw_edge
from ._weights import BLOBS, are_equal_arrays


def _make_intact_sets() -> list[Files]:
    return [
        {"weights.safetensors": save({f"{name}/{i}": b for name, blobs in BLOBS.items() for i, b in enumerate(blobs)})}
    ]


def _mutate(rng: Random, content: bytes) -> bytes:
    """Change the JSON at the begin, its length, or any bytes."""
    if rng.random() < 0.3:
        return damage(rng, content)
    (size,) = struct.unpack_from("<Q", content)
    header, data = content[8 : 8 + size], content[8 + size :]
    header = change_json(rng, header)
    stated_length = len(header) if rng.random() < 0.9 else draw_edge(rng)
    return struct.pack("<Q", stated_length) + header + data


def _read(folder: Path) -> Any:
    return FORMATS[".safetensors"].read(str(folder / "weights.safetensors"))


def _describe_difference(damaged: Files, intact: Files, expected: Any, actual: Any) -> str | None:
    """The file's own tables lead to the same numbers."""
    content = damaged["weights.safetensors"]
    begin = 8 + struct.unpack_from("<Q", content)[0]
    for key, entry in json.loads(content[8:begin]).items():
        if key != "__metadata__" and entry["dtype"] == "F32":
            data_begin, data_end = (begin + offset for offset in entry["data_offsets"])
            name, _, i = key.rpartition("/")
            if not i.isdecimal():
                continue  # an entry that is left out, or the blob of another name
            expected_blob = np.frombuffer(content[data_begin:data_end], "<f4").reshape(entry["shape"])
            if not are_equal_arrays(expected_blob, actual[name][int(i)]):
                return f"other numbers: {key}"
    return None


HARNESS = Harness(_make_intact_sets, mutate_one_file(_mutate), _read, _describe_difference)
