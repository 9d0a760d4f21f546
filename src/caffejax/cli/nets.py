"""Nets and weights as the flags of a command describe them."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from . import flags

if TYPE_CHECKING:
    from ..layers.context import Phase
    from ..net import Net, Variables


def net_of(options: argparse.Namespace, phase: Phase) -> Net:
    """The net that a command's flags describe."""
    from ..net import Net

    return Net(
        Path(options.model),
        phase,
        level=options.level,
        stages=flags.stages(options),
        run=flags.run_of(options),
        reading=flags.reading_of(options),
    )


def variables_of(net: Net, files: str | None) -> Variables:
    """Fresh variables, with the weights of these files, separated by commas, if any, one after the other."""
    import jax

    from ..checkpoints.loading import load_weights

    variables = net.init(jax.random.key(0))
    for file in files.split(",") if files else ():
        variables = load_weights(net.graph, variables, file)
    return variables
