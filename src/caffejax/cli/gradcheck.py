"""Check gradients in every way there is: autodiff, the layers' hand-written Backward, finite differences."""

from __future__ import annotations

import argparse
from typing import Any

from ..errors import CaffejaxError, DataError, Problem
from ..glog import start_logging
from . import flags
from .nets import net_of

HELP = "compare every layer's gradients: autodiff, hand-written rules, finite differences"
EXAMPLE = "caffejax gradcheck --model=configs/digits/lenet_train_test.prototxt --layers=conv1,ip2"


def add_flags(parser: argparse.ArgumentParser) -> None:
    """The command's flags."""
    flags.add(parser, "model", "the net prototxt", required=True, metavar="FILE")
    flags.add(parser, "phase", "the net's phase", choices=("TRAIN", "TEST"), default="TRAIN")
    flags.add(parser, "layers", "check these layers only, separated by commas", metavar="A,B")
    flags.add(parser, "weights", "weights from this .caffemodel, else from the fillers", metavar="FILE")
    flags.add(parser, "inputs", "input blobs by name, else from the data layers or random", metavar="FILE.npz")
    flags.add(parser, "samples", "elements per array for finite differences", type=int, metavar="N")
    flags.add(parser, "seed", "for fillers, random inputs and random layers", type=int, default=0, metavar="N")
    flags.add(parser, "json", "write the report to this file too", metavar="FILE")
    flags.add_kernels_flag(parser)
    flags.add_state_flags(parser)


def run(options: argparse.Namespace) -> None:
    """Prints the table; a disagreement is an error."""
    start_logging()
    from ..gradcheck import check_gradients

    report = check_gradients(
        net_of(options, options.phase),
        layers=[name for name in options.layers.split(",") if name] if options.layers else None,
        weights=options.weights,
        inputs=_arrays(options.inputs) if options.inputs else None,
        samples=options.samples,
        seed=options.seed,
    )
    print(report)
    if options.json:
        _write(options.json, report.to_json() + "\n")
    if not report.rows:
        raise CaffejaxError("no layer has anything to take a gradient of")
    if not report.ok:
        raise CaffejaxError(
            Problem(str(row), file=options.model, layer=row.layer, layer_type=row.type) for row in report.failures
        )


def _arrays(path: str) -> dict[str, Any]:
    """The arrays of an .npz file by name."""
    import zipfile

    import numpy as np

    try:
        with np.load(path, allow_pickle=False) as file:
            return dict(file)
    except (OSError, ValueError, TypeError, zipfile.BadZipFile) as error:
        raise DataError(Problem(f"cannot be read as .npz: {error}", file=path)) from error


def _write(path: str, text: str) -> None:
    from pathlib import Path

    try:
        Path(path).write_text(text)
    except OSError as error:
        raise CaffejaxError(Problem(f"cannot be written: {error.strerror}", file=path)) from error
