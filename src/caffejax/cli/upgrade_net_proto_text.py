"""Convert an old net prototxt to Caffe's current format; input and output may be the same file."""

from __future__ import annotations

import argparse

from . import upgrading

HELP = "upgrade an old net prototxt"
EXAMPLE = "caffejax upgrade_net_proto_text old.prototxt new.prototxt"


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the command's flags."""
    upgrading.add_flags(parser, "net prototxt")


def run(options: argparse.Namespace) -> None:
    """Upgrade the prototxt."""
    from ..schema import read_net

    upgrading.rewrite_text(options, read_net)
