"""Flags and file rewriting shared by the commands that upgrade old files."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..glog import log, start_logging


def add_flags(parser: argparse.ArgumentParser, what: str) -> None:
    """Add the arguments INPUT, the file to read, and OUTPUT, the file to write; `what` is the kind of the file."""
    parser.add_argument("input", help=f"the {what} to read", metavar="INPUT")
    parser.add_argument("output", help="the file to write", metavar="OUTPUT")


def rewrite_text(options: argparse.Namespace, read: Callable[[Path], Any]) -> None:
    """Read the input file by `read`, which upgrades the message, and write the message as text to the output file."""
    from ..atomic import replacing
    from ..schema import format_text

    start_logging()
    message = read(Path(options.input))
    text = format_text(message)
    with replacing(options.output) as file:
        file.write(text.encode())
    log.info("Wrote upgraded %s text proto to %s", message.DESCRIPTOR.name, options.output)
