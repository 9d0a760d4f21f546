"""Window files under a WindowData layer."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import cv2
import numpy as np

from ..harness import Files, Harness, mutate_one_file
from ..mutators.byte_mutations import damage
from ..mutators.tokens import change_tokens
from ._sources import read_net_batches

_NET = """layer { name: "d" type: "WindowData" top: "data" top: "label" transform_param { crop_size: 12 mirror: true }
  window_data_param { source: "windows.txt" batch_size: 8 context_pad: 2 %s } }"""
_TEXT = b"""# 0
im0.png
3
50
70
4
3 1.0 10 5 40 30
5 0.7 0 0 69 49
2 0.5 20 20 25 44
1 0.3 30 3 60 20
# 1
im1.png
3 64 40
3
7 0.9 1 2 38 60
0 0.0 5 5 30 30
4 0.45 0 0 39 63
"""


def _make_intact_sets() -> list[Files]:
    images = {}
    for i, (height, width) in enumerate([(50, 70), (64, 40)]):
        pixels = np.random.default_rng(i).integers(0, 256, (height, width, 3), np.uint8)
        images[f"im{i}.png"] = cv2.imencode(".png", pixels)[1].tobytes()
    return [{**images, "windows.txt": _TEXT}]


def _mutate(rng: Random, content: bytes) -> bytes:
    words = ["im0.png", "im1.png", "#", "# 2", "windows.txt", ".", "0.5"]
    return damage(rng, content) if rng.random() < 0.2 else change_tokens(rng, content, words)


def _read(folder: Path) -> Any:
    result = read_net_batches(_NET % "", folder, 3)
    read_net_batches(_NET % "crop_mode: 'square' cache_images: true", folder, 2, "TRAIN")
    return result


HARNESS = Harness(_make_intact_sets, mutate_one_file(_mutate, ".txt"), _read, is_text=True)
