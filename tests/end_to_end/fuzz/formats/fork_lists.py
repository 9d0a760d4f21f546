"""Lists, settings and label maps that data layers of forks read, and the lists and flows of image pairs."""

from __future__ import annotations

import struct
from argparse import Namespace
from pathlib import Path
from random import Random
from typing import Any

import cv2
import numpy as np

from caffejax.cli import convert_imageset_and_flow

from ..harness import Files, Harness
from ..mutators.byte_mutations import damage
from ..mutators.json_trees import change_json
from ..mutators.tokens import change_tokens
from ._sources import read_batches

_FORKS = Path(__file__).parents[3] / "forks"
_NETS = {  # the net, and its list
    "image_gt": (
        """layer { name: "d" type: "ImageGtData" top: "data" top: "map" top: "map8" top: "boxes"
          transform_param { mirror: true } image_gt_data_param { source: "list.txt" batch_size: 2 output_gt_boxes: true
          downsample_rate: 4 field_h: 12 field_w: 8 downsample_rate: 8 field_h: 24 field_w: 24
          crop_width: 24 crop_height: 16 do_multiple_scale: true min_scale: 8 max_scale: 32
          min_whaspect: 0.5 max_whaspect: 2 } }""",
        "# 0\na.png\n3\n32\n40\n2\n1 0 3 4 20 25\n2 1 5 5 39 31\n1\n0 0 8 8\n# 1\nb.png\n3 32 40\n1\n2 0 1 2 9 30\n0\n",
    ),
    "frcnn": (
        """layer { name: "d" type: "FrcnnRoiData" top: "data" top: "info" top: "gt"
          window_data_param { source: "list.txt" config: "config.json" } }
          layer { name: "c" type: "Convolution" bottom: "data" top: "scores" convolution_param {
            num_output: 6 kernel_size: 8 stride: 8 } }
          layer { name: "b" type: "Convolution" bottom: "data" top: "deltas" convolution_param {
            num_output: 12 kernel_size: 8 stride: 8 } }
          layer { name: "t" type: "FrcnnAnchorTarget" bottom: "scores" bottom: "gt" bottom: "info"
            top: "t0" top: "t1" top: "t2" top: "t3" }
          layer { name: "p" type: "FrcnnProposal" bottom: "scores" bottom: "deltas" bottom: "info" top: "rois" }
          layer { name: "s" type: "FrcnnProposalTarget" bottom: "rois" bottom: "gt"
            top: "s0" top: "s1" top: "s2" top: "s3" top: "s4" }""",
        "# 0\na.png\n2\n1 3 4 30 25 0\n2 -2 10 39 45 1\n# 1\nb.png\n1\n2 1 1 5 5 0\n",
    ),
    "pairs": ("", "@/a.png @/b.png @/f.flo @/a.png\n@/a.png @/b.png @/f.pfm\n@/b.png @/a.png\n"),
}


def _make_intact_sets() -> list[Files]:
    rng = np.random.default_rng(0)
    images = {
        name: cv2.imencode(".png", rng.integers(0, 256, (32, 40, 3), np.uint8))[1].tobytes()
        for name in ("a.png", "b.png")
    }
    flow = rng.normal(0, 4, (32, 40, 3)).astype("<f4")
    flows = {
        "f.flo": b"PIEH" + struct.pack("<ii", 40, 32) + flow[..., :2].tobytes(),
        "f.pfm": b"PF\n40 32\n-1.0\n" + flow.tobytes(),
    }
    config = {"config.json": (_FORKS / "rcnn" / "frcnn_config.json").read_bytes()}
    return [
        {"list.txt": text.encode(), "net.prototxt": net.encode(), **images, **further_files}
        for (net, text), further_files in zip(_NETS.values(), ({}, config, flows), strict=True)
    ]


def _mutate(rng: Random, files: Files) -> Files:
    name = rng.choice(sorted(name for name in files if not name.endswith((".png", ".prototxt"))))
    if name == "config.json" and rng.random() < 0.5:
        return {**files, name: change_json(rng, files[name].replace(b"\n", b""))}
    if name.startswith("f.") and rng.random() < 0.7:  # the header
        return {**files, name: damage(rng, files[name][:14]) + files[name][14:]}
    words = ["a.png", "@/b.png", "@/f.flo", "list.txt", "@", ".", "#", "3", "-5", '"scales"', '"1,2"']
    is_text = not name.startswith("f.") and rng.random() < 0.8
    return {**files, name: change_tokens(rng, files[name], words) if is_text else damage(rng, files[name])}


def _read(folder: Path) -> Any:
    if (folder / "net.prototxt").stat().st_size:
        read_batches(folder / "net.prototxt", 3, "TRAIN")
        return read_batches(folder / "net.prototxt", 3)
    path = folder / "list.txt"
    path.write_bytes(path.read_bytes().replace(b"@", bytes(folder)))
    options = Namespace(list=str(path), database=f"{folder}/db", shuffle="1", backend="lmdb", max_image_pixels=1 << 22)
    convert_imageset_and_flow.run(options)
    return None


HARNESS = Harness(_make_intact_sets, _mutate, _read, is_text=True)
