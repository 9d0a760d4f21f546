"""Copy a small model with its data into a folder, train it, and draw its predictions. No network is needed.

The demo "digits" trains LeNet on handwritten digits, which takes less than a minute on two cores. The demo "shapes"
trains SSD on synthetic pictures of discs, squares and triangles, which takes two to four minutes on two cores. The demo
"face" trains the same SSD on synthetic faces that are smiling, sad or surprised. The folder contains the prototxts, the
data and a few pictures. Change the prototxts and train again.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from ..base.atomic_write import make_write_problem
from ..base.errors import CaffejaxError
from . import flags

if TYPE_CHECKING:
    import numpy as np

HELP = "copy a small model with its data into a folder, and train it"
EXAMPLE = "caffejax demo digits"


@dataclass(frozen=True)
class _Demo:
    folder: str  # the folder in configs
    solver: str
    net: str  # for predictions
    prefix: str  # of snapshots
    iterations: int


_DETECTION_DEMO = _Demo("ssd_shapes", "solver.prototxt", "deploy.prototxt", "snapshots/ssd_shapes", 800)
_DEMOS = {
    "digits": _Demo("digits", "lenet_solver.prototxt", "lenet_train_test.prototxt", "snapshots/lenet", 1000),
    "shapes": _DETECTION_DEMO,
    "face": _DETECTION_DEMO,
}
_NUM_PICTURES = 4  # on which the demo predicts


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the command's flags."""
    parser.add_argument("name", help="the model", choices=tuple(_DEMOS), nargs="?", default="digits")
    parser.add_argument("folder", help="the new folder (default: caffejax_NAME)", metavar="FOLDER", nargs="?")
    flags.add_switch(parser, "copy_only", "only write the folder, and print the commands that train and predict")


def run(options: argparse.Namespace) -> None:
    """Write the folder, train, and draw.

    Raises:
        CaffejaxError: if the folder already contains files or cannot be written, or a command fails.
    """
    demo = _DEMOS[options.name]
    folder = Path(options.folder or f"caffejax_{options.name}")
    try:
        images = _write_folder(options.name, folder)
    except OSError as error:
        raise CaffejaxError(make_write_problem(folder, error)) from error
    commands = list(_list_commands(demo, images))
    if options.copy_only:
        print("\n".join([f"cd {folder}", *(f"caffejax {' '.join(command)}" for command in commands)]))
        return
    print(f"$ cd {folder}")
    for command in commands:
        print(f"$ caffejax {' '.join(command)}", flush=True)
        if subprocess.run([sys.executable, "-m", "caffejax", *command], cwd=folder, check=False).returncode:
            raise CaffejaxError(f"caffejax {' '.join(command)}: the command failed")
    print(f"Look at the pictures in {folder}, change its prototxts, and train again.")


def _write_folder(name: str, folder: Path) -> list[str]:
    """Write a demo's files into a new or empty folder; return the paths of its pictures, relative to the folder."""
    demo = _DEMOS[name]
    if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
        command = f"cd {folder}; caffejax train --solver={demo.solver} --snapshot={demo.prefix}.orbax"
        has_snapshot = any(folder.glob(f"{demo.prefix}.orbax/[0-9]*"))
        hint = f", or resume its training: {command}" if has_snapshot else ""
        raise CaffejaxError(f"{folder} already exists; name a new folder{hint}")
    shutil.copytree(
        _find_demo_folder(demo.folder), folder, ignore=shutil.ignore_patterns("lock.mdb"), dirs_exist_ok=True
    )
    if demo is _DETECTION_DEMO:
        from .demo_pictures import OBJECT_NAMES, write_databases

        write_databases(name, folder)
        (folder / "labels.txt").write_text("\n".join(("background", *OBJECT_NAMES[name])) + "\n")
    return _write_images(name, folder)


def _list_commands(demo: _Demo, images: list[str]) -> Iterator[list[str]]:
    yield ["train", f"--solver={demo.solver}"]
    weights = f"--weights={demo.prefix}_iter_{demo.iterations}.caffemodel"
    yield ["predict", demo.net, *images, weights, "--labels=labels.txt", "--out=predicted"]
    if find_spec("matplotlib"):
        yield ["plot", f"{demo.prefix}.metrics.jsonl", "--out=curves.png"]


def _find_demo_folder(name: str) -> Path:
    package = Path(__file__).parents[1]
    folders = package / "demos" / name, package.parents[1] / "configs" / name
    return next(folder for folder in folders if folder.is_dir())


def _write_images(name: str, folder: Path) -> list[str]:
    import cv2

    paths = []
    for index, image in enumerate(_make_images(name, folder)):
        paths.append(f"{name}_{index}.png")
        cv2.imwrite(str(folder / paths[-1]), image)
    return paths


def _make_images(name: str, folder: Path) -> Iterator[np.ndarray]:
    if _DEMOS[name] is _DETECTION_DEMO:
        from .demo_pictures import draw_pictures

        for image, _ in draw_pictures(name, _NUM_PICTURES, seed=1):
            yield image
        return
    from ..base.databases.lmdb import Lmdb
    from ..core.data.image_decoding import read_datum

    for _, record in Lmdb(folder / "digits_test_lmdb").read_range(0, _NUM_PICTURES):
        yield read_datum(record)[0].transpose(1, 2, 0)
