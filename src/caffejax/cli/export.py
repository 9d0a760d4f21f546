"""Export a net with its weights: as StableHLO, as ONNX, as the source of a flax module.

The form is what --to says: a file whose name ends in .stablehlo or .onnx, or flax, which goes to the folder --out.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from ..errors import CaffejaxError, Problem
from ..glog import log, start_logging
from . import flags, nets

if TYPE_CHECKING:
    from ..export import Subject

HELP = "export a net as StableHLO, ONNX or flax source"
EXAMPLE = "caffejax export deploy.prototxt --weights=net.caffemodel --to=net.stablehlo"

ANY = "any"
_FORMS = {".stablehlo": "stablehlo", ".onnx": "onnx", "flax": "flax"}
_ONLY_FOR = {  # flags that mean nothing for other forms
    "platforms": ("stablehlo",),
    "batch": ("stablehlo", "onnx"),
    "batch_axis": ("stablehlo",),
    "opset": ("onnx",),
    "out": ("flax",),
}


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments and flags."""
    parser.add_argument("model", metavar="NET", help="the net prototxt")
    flags.add(parser, "weights", "the weights, of several files one after the other", metavar="W[,W2]")
    flags.add_switch(parser, "random_weights", "have fillers make what the weights lack")
    flags.add(parser, "to", "the file to write, *.stablehlo or *.onnx; or flax", required=True, metavar="FILE|flax")
    flags.add(parser, "out", "with --to=flax: the folder to write", metavar="FOLDER")
    flags.add(parser, "outputs", "the blobs that are wanted; what the net predicts unless given", metavar="A,B")
    batch = "rows that it takes: any, or a number; any unless given, where the layers can"
    flags.add(parser, "batch", batch, type=_rows, metavar="any|N")
    flags.add(parser, "batch_axis", "the axis of the inputs that is the batch", type=flags.count, metavar="N")
    flags.add(parser, "platforms", "StableHLO: what it may run on; cpu,cuda,tpu unless given", metavar="A,B")
    flags.add(parser, "opset", "ONNX: the version of its operators", type=flags.positive, metavar="N")
    phase = "which of the prototxt's layers; they behave as in TEST in either case"
    flags.add(parser, "phase", phase, choices=("TRAIN", "TEST"), default="TEST")
    nets.add_state_flags(parser)


def run(options: argparse.Namespace) -> None:
    """Export the net."""
    start_logging()
    form = _form(options)
    from ..export import Subject, weights_of

    net = nets.net_of(options)
    inference = net.for_inference(_names(options.outputs))
    if isinstance(options.batch, int):
        inference = inference.with_batch(options.batch, options.batch_axis or 0)
    files = _names(options.weights) or ()
    needed = [layer for layer in inference.graph.layers if not layer.type.is_fed]
    subject = Subject(inference, weights_of(net, files, needed, random=options.random_weights))
    _WRITERS[form](subject, options)
    taken = ", ".join(f"{name} {_dims(blob.shape)}" for name, blob in subject.inputs.items())
    given = ", ".join(f"{name} {_dims(inference.graph.blobs[name].shape)}" for name in subject.outputs)
    log.info("Exported %d layers: %s to %s", len(subject.layers), taken, given)
    log.info("Wrote %s", options.out if form == "flax" else options.to)


def _form(options: argparse.Namespace) -> str:
    """Return the form that `--to` names.

    Raises:
        CaffejaxError: naming all flags that do not go together.
    """
    form = _FORMS.get(options.to if options.to == "flax" else os.path.splitext(options.to)[1], "")
    problems = [] if form else [f"--to={options.to}: name a file that ends in .stablehlo or .onnx, or flax"]
    for name, forms in _ONLY_FOR.items():
        if form and form not in forms and getattr(options, name) is not None:
            problems.append(f"--{name} goes with {' and '.join(forms)} only")
    if form == "flax" and not options.out:
        problems.append("--to=flax needs --out=FOLDER")
    if problems:
        raise CaffejaxError(problems)
    return form


def _write_stablehlo(subject: Subject, options: argparse.Namespace) -> None:
    from ..export import PLATFORMS, write_stablehlo

    platforms = _names(options.platforms) or PLATFORMS

    def write(batch: bool) -> None:
        write_stablehlo(subject, options.to, platforms=platforms, batch=batch, batch_axis=options.batch_axis or 0)

    _in_any_batch(write, options)


def _write_onnx(subject: Subject, options: argparse.Namespace) -> None:
    raise CaffejaxError("ONNX is not there yet")


def _write_flax(subject: Subject, options: argparse.Namespace) -> None:
    raise CaffejaxError("flax source is not there yet")


_WRITERS: dict[str, Callable[[Subject, argparse.Namespace], None]] = {
    "stablehlo": _write_stablehlo,
    "onnx": _write_onnx,
    "flax": _write_flax,
}


def _in_any_batch(write: Callable[[bool], object], options: argparse.Namespace) -> None:
    """Write for any number of rows; unless it was asked for, for the net's own where a layer takes no other."""
    from ..export import BatchError

    if isinstance(options.batch, int):
        write(False)
        return
    try:
        write(True)
    except BatchError as error:
        if options.batch == ANY:
            raise BatchError(_with_remedy(error)) from error
        for problem in _with_remedy(error):
            log.warning("%s", problem)
        write(False)


def _with_remedy(error: CaffejaxError) -> Iterator[Problem]:
    from dataclasses import replace

    for p in error.problems:
        yield replace(p, message=f"takes no symbolic batch: {p.message}; --batch=N exports it for N rows")


def _rows(text: str) -> Any:
    return text if text == ANY else flags.positive(text)


def _names(text: str | None) -> list[str] | None:
    return [name for name in text.split(",") if name] if text else None


def _dims(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape)) or "scalar"
