"""Compare two dumps layer by layer, or a dump with a net that runs on the dump's inputs.

A dump is a file that `caffejax dump` writes. The values of the forward pass are compared first, then the gradients of
the backward pass. The exit code is 1 if the dumps differ. By default the net runs in the dump's phase with the dump's
parameters.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from ..base.errors import CaffejaxError, Problem
from ..base.glog import start_logging
from . import device_flags, flags, image_flags, net_flags

if TYPE_CHECKING:
    from ..tools.debugging.dumps import Dump

HELP = "compare two dumps of a net, or a dump with a net, layer by layer"
EXAMPLE = "caffejax compare caffe.npz net.prototxt --picture=error.png"
_NET_EXTENSIONS = (".prototxt", ".pt", ".pbtxt", ".txt")  # the extensions of nets


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the command's flags."""
    parser.add_argument("a", help="a dump from `caffejax dump` or scripts/collect_with_caffe.py", metavar="A.npz")
    parser.add_argument("b", help="the second dump, or the net to run on the dump's inputs", nargs="?", metavar="B")
    flags.add(parser, "model", "the net prototxt, instead of B", metavar="FILE")
    flags.add(parser, "weights", "the net's .caffemodel[.h5] file (default: the dump's parameters)", metavar="FILE")
    net_flags.add_strict_flag(parser)
    flags.add(parser, "phase", "the net's phase (default: the dump's)", choices=("TRAIN", "TEST"))
    net_flags.add_state_flags(parser)
    flags.add(parser, "rtol", "tolerance relative to the array's largest value", type=_parse_tolerance, metavar="X")
    flags.add(parser, "atol", "absolute tolerance, added to the relative one", type=_parse_tolerance, metavar="X")
    flags.add_switch(parser, "each_layer", "with a net: run each layer on the dump's bottoms and top diffs")
    flags.add_switch(parser, "random", "also count differences due to random layers, such as dropout in TRAIN")
    flags.add_json_flag(parser)
    flags.add(parser, "picture", "plot the error of each layer (needs matplotlib)", metavar="FILE.png")
    flags.add_options(parser, "kernels", "precision")
    device_flags.add_device_flags(parser)


def _parse_tolerance(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise argparse.ArgumentTypeError(f"'{text}' must be a number, 0 or greater")
    return value


def run(options: argparse.Namespace) -> None:
    """Print the comparison. If the dumps differ, raise `CaffejaxError`; the error describes the first difference."""
    start_logging()
    from ..tools.debugging.dumps import ATOL, RTOL, compare_dumps, draw_errors, read_dump

    if options.model is None and options.b is not None and Path(options.b).suffix in _NET_EXTENSIONS:
        options.model, options.b = options.b, None
    if (options.b is None) == (options.model is None):
        raise CaffejaxError("the first dump can be compared with a second dump or with a net; pass one of them as B")
    if options.each_layer and options.model is None:
        raise CaffejaxError("--each_layer runs a net's layers one by one: give a net, not a second dump")
    if options.picture:
        image_flags.check_figure_path(options.picture)
    a = read_dump(options.a)
    if options.b is None:
        with device_flags.default_device_scope(options):
            b = _run_net(options, a)
    else:
        b = read_dump(options.b)
    tolerances = {
        name: default if getattr(options, name) is None else getattr(options, name)
        for name, default in (("rtol", RTOL), ("atol", ATOL))
    }
    comparison = compare_dumps(a, b, **tolerances, compare_random=options.random)
    print(comparison.to_json() if options.json else comparison)
    if options.picture:
        draw_errors(comparison, options.picture)
        if not options.json:
            print(f"Wrote {options.picture}")
    if comparison.net_mismatch:
        raise CaffejaxError(comparison.net_mismatch)
    if (first := comparison.first_difference) is not None:
        raise CaffejaxError(Problem(f"the dumps first differ here: {first}", layer=first.layer, layer_type=first.type))
    if not comparison.ok:
        raise CaffejaxError("the dumps have no arrays in common")


def _run_net(options: argparse.Namespace, dump: Dump) -> Dump:
    from ..tools.debugging.dumps import replay_dump

    options.phase = options.phase or dump.phase
    net = net_flags.build_net(options)
    variables = net_flags.load_variables(net, options.weights, options.strict_weights) if options.weights else None
    return replay_dump(dump, net, variables, isolate_layers=options.each_layer)
