"""Convert weights between the formats .caffemodel, .caffemodel.h5, <prefix>.orbax[/step], .npz and .safetensors."""

from __future__ import annotations

import argparse

from ..base.glog import log, start_logging
from . import flags

HELP = "convert weights from one file format to another"
EXAMPLE = "caffejax convert --from=lenet_iter_1000.caffemodel --to=lenet.npz"


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the command's flags."""
    flags.add(
        parser, "from", "the weights to read; the file extension selects the format", required=True, metavar="FILE"
    )
    flags.add(parser, "to", "the file to write; the file extension selects the format", required=True, metavar="FILE")
    flags.add(
        parser,
        "model",
        "the net prototxt: adds layer definitions to a .caffemodel, and is required if layers share parameters",
        metavar="FILE",
    )


def run(options: argparse.Namespace) -> None:
    """Convert the weights."""
    start_logging()
    from pathlib import Path

    from ..core.checkpoints.weight_formats import convert
    from ..core.schema import read_net

    net = read_net(Path(options.model)) if options.model else None
    source, target = getattr(options, "from"), options.to
    weights = convert(source, target, net)
    layers = [layer for blobs in weights.values() if (layer := [b for b in blobs if b is not None])]
    num_blobs, num_values = sum(map(len, layers)), sum(b.size for layer in layers for b in layer)
    log.info("Wrote %d blobs of %d layers, %d numbers, to %s", num_blobs, len(layers), num_values, target)
