"""Brings an old solver prototxt up to date, with the nets inside it; the file to write may be the same."""

from __future__ import annotations

import argparse

HELP = "bring an old solver prototxt up to date"
EXAMPLE = "caffejax upgrade_solver_proto_text old.prototxt new.prototxt"


def add_flags(parser: argparse.ArgumentParser) -> None:
    """The command's flags."""
    parser.add_argument("input", help="the solver prototxt to read", metavar="INPUT")
    parser.add_argument("output", help="the file to write", metavar="OUTPUT")


def run(options: argparse.Namespace) -> None:
    """Upgrades."""
    from pathlib import Path

    from ..checkpoints.atomic import replacing
    from ..schema import format_text, read_solver
    from .glog import log, start_logging

    start_logging()
    text = format_text(read_solver(Path(options.input)))
    with replacing(options.output) as file:
        file.write(text.encode())
    log.info("Wrote upgraded SolverParameter text proto to %s", options.output)
