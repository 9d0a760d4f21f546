"""Write the tables LOG.train and LOG.test of a training log, with iteration, seconds, learning rate and outputs."""

from __future__ import annotations

import argparse
from pathlib import Path

from ..base.human_readable import format_count
from . import flags

HELP = "write the tables of a training log"
EXAMPLE = "caffejax parse_log train.log ."


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the command's flags."""
    parser.add_argument("logfile_path", help="the log of a training run with Caffe or caffejax", metavar="LOGFILE")
    parser.add_argument("output_dir", help="the folder for the tables", metavar="FOLDER")
    flags.add(parser, "verbose", help="print the rows too", action="store_true")
    flags.add(parser, "delimiter", help="the character between two columns", type=_parse_character, default=",")


def _parse_character(text: str) -> str:
    text = {"\\t": "\t", "tab": "\t"}.get(text, text)
    if len(text) != 1:
        raise argparse.ArgumentTypeError(f"'{text}' is not one character")
    return text


def run(options: argparse.Namespace) -> None:
    """Write the tables."""
    from ..tools.logs import parse_log, write_csv

    log_path = Path(options.logfile_path)
    tables = dict(zip(("train", "test"), parse_log(log_path), strict=True))
    for phase, rows in tables.items():
        if not rows:
            print(f"{log_path} contains no outputs of a {phase} net")
            continue
        table_path = Path(options.output_dir) / f"{log_path.name}.{phase}"
        write_csv(table_path, rows, options.delimiter)
        print(f"Wrote {format_count(len(rows), 'row')} to {table_path}")
        for row in rows if options.verbose else ():
            print(", ".join(f"{column} {value:g}" for column, value in row.items()))
