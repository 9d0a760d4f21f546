"""Run a net once and write every blob to an .npz file; with --backward, also write every diff and gradient.

Inputs are read from --inputs. An input that --inputs does not contain is the first batch of its data layer, or, for an
Input layer, random numbers from NumPy's RandomState(seed).normal, which are generated in the order of the inputs. The
dump also contains the inputs.
"""

from __future__ import annotations

import argparse

from ..base.glog import start_logging
from ..base.human_readable import format_count
from . import device_flags, flags, net_flags

HELP = "write every blob, diff and gradient of a net to an .npz file"
EXAMPLE = "caffejax dump net.prototxt --weights=net.caffemodel --phase=TRAIN --backward --out=A.npz"


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the command's flags."""
    net_flags.add_flags(parser)
    parser.set_defaults(phase="TEST")
    flags.add(parser, "weights", "the .caffemodel[.h5] file (default: random weights)", metavar="FILE")
    net_flags.add_strict_flag(parser)
    flags.add(parser, "out", "the file to write", required=True, metavar="FILE.npz")
    flags.add(parser, "inputs", "the input arrays by blob name; can be a dump", metavar="FILE.npz")
    flags.add_switch(parser, "backward", "collect diffs and gradients too; the net needs a loss", dest="diffs")
    flags.add(
        parser, "seed", "the seed of random inputs and random layers", type=flags.parse_seed, default=0, metavar="N"
    )
    flags.add_options(parser, "kernels", "precision")
    device_flags.add_device_flags(parser)


def run(options: argparse.Namespace) -> None:
    """Run the net and write the dump."""
    start_logging()
    from ..tools.debugging.dumps import read_inputs, record_dump, write_dump

    flags.check_output_path(options.out, options.model, *flags.split_commas(options.weights), options.inputs)
    with device_flags.default_device_scope(options):
        net = net_flags.build_net(options)
        inputs = read_inputs(options.inputs, net.input_names) if options.inputs else {}
        variables = net_flags.load_variables(net, options.weights, options.strict_weights)
        dump = record_dump(net, variables, inputs, backward=options.diffs, seed=options.seed)
    write_dump(options.out, dump)
    counts = [format_count(n, noun) for kind, noun in _NOUNS_BY_KIND if (n := len(dump.arrays_of_kind(kind)))]
    print(f"Wrote {options.out}: {', '.join(counts)}; loss {dump.arrays['loss']:g}")


_NOUNS_BY_KIND = (("input", "input"), ("param", "param"), ("blob", "blob"), ("diff", "diff"), ("grad", "gradient"))


class collect:  # noqa: N801  Intel's name for the command
    """Run a net once and write every blob to an .npz file. This command is the same as `dump`."""

    HELP = HELP
    EXAMPLE = "caffejax collect net.prototxt --weights=net.caffemodel --out=A.npz"
    add_flags = staticmethod(add_flags)
    run = staticmethod(run)
