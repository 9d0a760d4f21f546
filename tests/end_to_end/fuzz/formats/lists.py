"""Lists of images, of pairs of images, and of videos' frames, under the layers that read them."""

from __future__ import annotations

import re
from pathlib import Path
from random import Random
from typing import Any

import cv2
import numpy as np

from ..harness import Files, Harness
from ..mutators.byte_mutations import damage
from ..mutators.tokens import change_tokens
from ._sources import read_batches

_LAYERS = {
    "ImageData": (
        "image_data_param { source: 'list.txt' batch_size: 3 shuffle: true rand_skip: 2 }",
        "a.png 1\nb c.png 0\nd/e.png 7\n",
    ),
    "ImageSegData": (
        "image_data_param { source: 'list.txt' batch_size: 2 label_type: PIXEL }",
        "a.png d/e.png\nb c.png a.png\n",
    ),
    "DenseImageData": ("dense_image_data_param { source: 'list.txt' batch_size: 2 }", "a.png d/e.png\nb c.png a.png\n"),
    "ImageLabelmapData": ("image_data_param { source: 'list.txt' batch_size: 2 }", "a.png d/e.png\nb c.png a.png\n"),
    "VideoData": (
        "video_data_param { source: 'list.txt' batch_size: 2 new_length: 2 modality: RGB"
        " name_pattern: 'img_%05d.jpg' }",
        "frames 4 1\nframes 3 0\n",
    ),
}


def _make_intact_sets() -> list[Files]:
    rng = np.random.default_rng(0)
    image = cv2.imencode(".png", rng.integers(0, 4, (9, 12, 3), np.uint8))[1].tobytes()
    frames = [f"frames/img_{i:05d}.jpg" for i in range(1, 6)]
    images = dict.fromkeys(("a.png", "b c.png", "d/e.png", *frames), image)
    return [
        {**images, "list.txt": text.encode(), "net.prototxt": _net_text(layer_type, param).encode()}
        for layer_type, (param, text) in _LAYERS.items()
    ]


def _net_text(layer_type: str, param: str) -> str:
    return f'layer {{ name: "d" type: "{layer_type}" top: "data" top: "label" {param} }}'


def _mutate(rng: Random, files: Files) -> Files:
    words = ["a.png", "b", "c.png", "frames", "list.txt", ".", "/", "~", "1", "-5", "%d"]
    change = damage if rng.random() < 0.2 else lambda rng, content: change_tokens(rng, content, words)
    return {**files, "list.txt": change(rng, files["list.txt"])}


def _read(folder: Path) -> Any:
    return read_batches(folder / "net.prototxt", 3)


def _describe_difference(damaged: Files, intact: Files, expected: Any, actual: Any) -> str | None:
    """Labels of an ImageData list stand in it."""
    if b'"ImageData"' not in damaged["net.prototxt"]:
        return None
    listed_numbers = {int(n) for n in re.findall(rb"[+-]?\d+", damaged["list.txt"]) if len(n) < 4000}
    labels = {int(label) for batch in actual for label in batch[1]}
    return (
        None if labels <= {np.float32(n) for n in listed_numbers} else f"labels from nowhere: {labels - listed_numbers}"
    )


HARNESS = Harness(_make_intact_sets, _mutate, _read, _describe_difference, is_text=True)
