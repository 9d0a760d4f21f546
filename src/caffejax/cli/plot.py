"""Plot training runs: the loss, all outputs of the test nets and the learning rate, in one figure.

A log is a text log of caffejax or Caffe, or the JSON lines that caffejax writes while it trains (*.metrics.jsonl).
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from . import flags, image_flags

HELP = "plot training runs in one figure (needs the extra 'plot')"
EXAMPLE = "caffejax plot snapshots/lenet.metrics.jsonl caffe.log --out curves.svg --smooth=5"


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the command's flags."""
    parser.add_argument("logs", help="logs of training runs", nargs="+", metavar="LOG")
    out_help = "the picture; the file extension selects the format: .png, .svg, .pdf"
    flags.add(parser, "out", out_help, default="curves.png", metavar="FILE")
    flags.add(parser, "x", "the unit of the horizontal axis", choices=("iterations", "seconds"), default="iterations")
    smooth_help = "smooth training outputs with means over N points; the points themselves are drawn faintly"
    flags.add(parser, "smooth", smooth_help, type=flags.parse_positive, default=1, metavar="N")
    flags.add_switch(parser, "log_loss", "draw the loss on a logarithmic scale")
    flags.add(parser, "names", "names of the runs, separated by commas (default: the file names)", metavar="A,B")


def run(options: argparse.Namespace) -> None:
    """Plot the runs."""
    from ..base.errors import CaffejaxError
    from ..tools.logs import draw_runs, read_logs, write_figure

    image_flags.check_figure_path(options.out)
    names = options.names.split(",") if options.names else name_runs(options.logs)
    if len(names) != len(options.logs):
        raise CaffejaxError(f"--names names {len(names)} runs, but there are {len(options.logs)} logs")
    if duplicates := [name for i, name in enumerate(names) if name in names[:i]]:
        name = duplicates[0]
        raise CaffejaxError(f"the run '{name}' is named twice: give each log once, and each run a different name")
    logs = dict(zip(names, read_logs(options.logs), strict=True))
    figure = draw_runs(logs, axis=options.x, smooth=options.smooth, log_loss=options.log_loss)
    write_figure(figure, options.out)
    print(f"Wrote {options.out}")


def name_runs(paths: Sequence[str]) -> list[str]:
    """Return a name for each log: its file name without extension, preceded by its folder if file names are equal."""
    names = [Path(path).as_posix() for path in paths]
    for suffix in (".metrics.jsonl", ".jsonl", ".log", ".txt"):
        names = [name.removesuffix(suffix) for name in names]
    short_names = [name.rpartition("/")[2] for name in names]
    return [name if short_names.count(name) == 1 else path for name, path in zip(short_names, names, strict=True)]
