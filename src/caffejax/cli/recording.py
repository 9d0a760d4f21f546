"""Flags that say how training is recorded and shown: JSON lines, TensorBoard, the live display."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from . import flags

if TYPE_CHECKING:
    from ..training import Solver

_OFF = "off"


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add `--metrics`, `--tensorboard` and `--show`."""
    records = flags.group(parser, "what is recorded and shown")
    flags.add(
        records,
        "metrics",
        "add a line of JSON for each display, test and snapshot to this file; <snapshot_prefix>.metrics.jsonl unless "
        "given; off: none",
        metavar="FILE|off",
    )
    flags.add(
        records,
        "tensorboard",
        "write events for TensorBoard to this folder (needs the extra 'tensorboard')",
        metavar="FOLDER",
    )
    flags.add(
        records,
        "show",
        "the outputs of test nets on the live display, separated by commas; those that are no losses unless given",
        metavar="NAMES",
    )


@contextmanager
def recorded(solver: Solver, options: argparse.Namespace) -> Iterator[None]:
    """Record and show what a solver does, as the flags say."""
    from ..metrics import JsonLines, TensorBoard
    from .progress import shown

    recorders: list[JsonLines | TensorBoard] = []
    if options.metrics != _OFF:
        recorders.append(JsonLines(options.metrics or f"{solver.snapshots.prefix}.metrics.jsonl"))
    if options.tensorboard:
        recorders.append(TensorBoard(options.tensorboard))
    solver.callbacks += recorders
    try:
        with shown(solver, flags.several(options.show)):
            yield
    finally:
        for recorder in recorders:
            solver.callbacks.remove(recorder)
