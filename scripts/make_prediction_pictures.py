"""Writes the picture of docs/predicting.md: trains the small SSD on drawn shapes, and has `caffejax predict` find some.

python scripts/make_prediction_pictures.py    # some minutes on two cores
"""

from __future__ import annotations

import os
import sys
import tempfile
from itertools import count
from pathlib import Path

import cv2
import numpy as np
from make_ssd_shapes import PICTURES as PARTS
from make_ssd_shapes import SHAPES, picture, pictures

from caffejax import Solver
from caffejax.cli import main
from caffejax.data import write_lmdb
from caffejax.schema import read_solver

REPOSITORY = Path(__file__).resolve().parents[1]
FOLDER = REPOSITORY / "docs" / "pictures"
CONFIG = REPOSITORY / "configs" / "ssd_shapes"


def draw() -> int:
    """Train, and write the picture; return the exit code."""
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        for file in CONFIG.glob("*.prototxt"):
            Path(file.name).write_text(file.read_text())
        for seed, (part, size) in enumerate(PARTS.items()):
            write_lmdb(f"shapes_{part}_lmdb", pictures(size, seed))
        param = read_solver("solver.prototxt")
        param.snapshot_prefix = "shapes"
        solver = Solver(param, file="solver.prototxt")
        solver.solve()
        solver.close()
        drawn = (picture(np.random.RandomState(seed)) for seed in count(len(PARTS)))  # none of those for training
        cv2.imwrite("shapes.png", next(image for image, shapes in drawn if len(shapes) == 4))
        Path("names.txt").write_text("\n".join(("background", *SHAPES)))
        weights = f"--weights=shapes_iter_{param.max_iter}.caffemodel"
        out = f"--out={FOLDER / 'predict_shapes.png'}"
        code = main(["predict", "deploy.prototxt", "shapes.png", weights, "--labels=names.txt", out])
        os.chdir(REPOSITORY)
    return code


if __name__ == "__main__":
    sys.exit(draw())
