"""Compare gradients by autodiff, by the layers' hand-written Backward, and by finite differences."""

from __future__ import annotations

import argparse

from ..base.errors import CaffejaxError, Problem
from ..base.glog import start_logging
from . import device_flags, flags, net_flags

HELP = "compare every layer's gradients: autodiff, hand-written rules, finite differences"
EXAMPLE = "caffejax gradcheck train_val.prototxt --layers=conv1,ip2"


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the command's flags."""
    net_flags.add_flags(parser)
    flags.add(parser, "layers", "check these layers only, separated by commas", metavar="A,B")
    flags.add(parser, "weights", "the .caffemodel[.h5] file (default: random weights)", metavar="FILE")
    flags.add(
        parser,
        "inputs",
        "arrays for the input blobs, by name (default: a batch of the data layers, or random arrays)",
        metavar="FILE.npz",
    )
    flags.add(parser, "samples", "the number of elements per array for finite differences", type=int, metavar="N")
    flags.add(
        parser,
        "seed",
        "the seed of fillers, random inputs and random layers",
        type=flags.parse_seed,
        default=0,
        metavar="N",
    )
    flags.add_json_flag(parser)
    flags.add_options(parser, "kernels")
    device_flags.add_device_flags(parser)


def run(options: argparse.Namespace) -> None:
    """Print the table; raise `CaffejaxError` if gradients disagree."""
    start_logging()
    from ..core.gradcheck import check_gradients
    from ..tools.debugging.dumps.dump import read_inputs

    with device_flags.default_device_scope(options):
        net = net_flags.build_net(options)
        report = check_gradients(
            net,
            layers=flags.split_commas(options.layers) if options.layers else None,
            weights=options.weights,
            inputs=read_inputs(options.inputs, net.input_names) if options.inputs else None,
            samples=options.samples,
            seed=options.seed,
        )
    print(report.to_json() if options.json else report)
    if not report.rows:
        raise CaffejaxError("no layer has a bottom or parameter to differentiate")
    if not report.ok:
        raise CaffejaxError(
            Problem(str(row), file=options.model, layer=row.layer, layer_type=row.type) for row in report.failures
        )
