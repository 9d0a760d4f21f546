"""Convert an old solver prototxt, with the nets in it, to Caffe's current format; both files may be the same."""

from __future__ import annotations

import argparse

from . import upgrading

HELP = "upgrade an old solver prototxt"
EXAMPLE = "caffejax upgrade_solver_proto_text old.prototxt new.prototxt"


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the command's flags."""
    upgrading.add_flags(parser, "solver prototxt")


def run(options: argparse.Namespace) -> None:
    """Upgrade the prototxt."""
    from ..schema import read_solver

    upgrading.rewrite_text(options, read_solver)
