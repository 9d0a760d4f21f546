"""Summarise a net: layers, shapes, parameters, multiply-adds, activation memory, receptive field and stride.

Receptive field and stride are in pixels of the net's inputs along each spatial axis; "-" means that an output depends
on all pixels, as after an InnerProduct, or that they are undefined. Multiply-adds and activations are for the whole
batch.
"""

from __future__ import annotations

import argparse

from ..glog import start_logging
from . import flags, net_flags

HELP = "summarise a net: shapes, parameters, multiply-adds, memory, receptive fields"
EXAMPLE = "caffejax summary configs/googlenet/train_val.prototxt --batch=1"


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the command's flags."""
    parser.add_argument("model", help="the net prototxt", metavar="NET")
    flags.add(parser, "phase", "the net's phase", choices=("TRAIN", "TEST"), default="TEST")
    net_flags.add_state_flags(parser)
    flags.add(parser, "batch", "the batch size (default: the net's)", type=flags.positive, metavar="N")
    flags.add_switch(parser, "json", "print the exact numbers as JSON")


def run(options: argparse.Namespace) -> None:
    """Print the summary."""
    start_logging()
    from ..graph.reshape import with_batch
    from ..summary import summarize

    graph = net_flags.graph_of(options)
    summary = summarize(graph if options.batch is None else with_batch(graph, options.batch))
    print(summary.to_json() if options.json else summary)
