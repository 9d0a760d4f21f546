"""Nets and weights as the flags of a command describe them."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import CaffejaxError
from ..options import LIMITS, TrainConfig
from . import flags

if TYPE_CHECKING:
    from ..graph import Graph
    from ..layers.context import Phase
    from ..net import Net, Variables


def add_flags(parser: argparse.ArgumentParser, phase: Phase | None = None) -> None:
    """Add `--model`, the flags of `add_state_flags`, and `--phase` unless the command has nets of one phase only."""
    flags.add(parser, "model", "the net prototxt", required=True, metavar="FILE")
    if phase is None:
        flags.add(parser, "phase", "the net's phase", choices=("TRAIN", "TEST"), default="TRAIN")
    else:
        parser.set_defaults(phase=phase)
    add_state_flags(parser)


def add_state_flags(parser: argparse.ArgumentParser) -> None:
    """Add `--level` and `--stage`, and the flags of `add_code_and_limits`."""
    state = flags.group(parser, "the net's state")
    flags.add(state, "level", "the net's level", type=flags.level, default=0)
    flags.add(state, "stage", "the net's stages, separated by commas", default="", metavar="A,B")
    add_code_and_limits(parser)


def add_code_and_limits(parser: argparse.ArgumentParser) -> None:
    """Add what all commands have that build nets: `--import`, and the limits of what is read."""
    add_import_flag(parser)
    flags.add_options(parser, *LIMITS)


def stages(options: argparse.Namespace) -> list[str]:
    """Return the stages that `--stage` names."""
    return flags.several(options.stage)


def net_of(options: argparse.Namespace) -> Net:
    """Make the net that a command's flags describe.

    Raises:
        GraphError: if it has no layers, or with all that is wrong with it.
        CaffejaxError: if its file or those of `--weights` are not there.
    """
    from ..net import Net
    from ..paths import check_there

    check_there([options.model, *flags.several(getattr(options, "weights", None))])

    net = Net(
        Path(options.model),
        options.phase,
        level=options.level,
        stages=stages(options),
        run=flags.run_of(options),
        reading=flags.reading_of(options),
    )
    _require_layers(net.graph, options)
    return net


def graph_of(options: argparse.Namespace) -> Graph:
    """Make the graph of the net that flags describe; the files that its data layers read need not be there.

    What is assumed of those that are not is logged.

    Raises:
        CaffejaxError: as `net_of`; or if the settings of a layer whose source is absent tell no shapes.
    """
    from ..data.placeholder_sources import AbsentError, assumed_graphs
    from ..errors import CaffejaxError, Problem
    from ..glog import log
    from ..graph import net_state
    from ..paths import check_there
    from ..schema import read_what_is_right

    check_there([options.model])
    file = Path(options.model)
    message, wrong = read_what_is_right(file)
    state = net_state(message, options.phase, options.level, stages(options))
    try:
        found = next(assumed_graphs(message, state, file, flags.reading_of(options), wrong))
    except AbsentError as error:
        raise CaffejaxError(Problem(str(error), options.model)) from error
    for sentence in found.assumed:
        log.warning("%s", sentence)
    _require_layers(found.graph, options)
    return found.graph


def _require_layers(graph: Graph, options: argparse.Namespace) -> None:
    from ..errors import GraphError, Problem

    if not graph.layers:
        raise GraphError(Problem(f"the net has no layers in phase {options.phase}", options.model))


def add_strict_flag(parser: argparse.ArgumentParser) -> None:
    """Add `--strict_weights`."""
    flags.add_fields(parser, TrainConfig, ["strict_weights"])


def variables_of(net: Net, files: str | None, strict: bool = False) -> Variables:
    """Return fresh variables, with the weights of these files, separated by commas, if any, one after the other.

    Raises:
        WeightsError: as `load_weights`.
    """
    from ..checkpoints.loading import load_weights

    return load_weights(flags.several(files), net.graph, net.initializer(), strict)


def add_import_flag(parser: argparse.ArgumentParser) -> None:
    """Add `--import`."""
    flags.add(
        parser,
        "import",
        "import this module first, as one that registers layer types; may be given several times",
        dest="imports",
        type=_module,
        action="append",
        metavar="MODULE",
    )


def _module(text: str) -> str:
    """Parse the name of a module."""
    if text.endswith(".py"):
        raise argparse.ArgumentTypeError(f"'{text}' is a file; give the module's name, '{text.removesuffix('.py')}'")
    if not all(part.isidentifier() for part in text.split(".")):
        raise argparse.ArgumentTypeError(f"'{text}' is not a module's name, such as my_layers")
    return text


def import_modules(names: Sequence[str]) -> None:
    """Import modules, also from the working directory, which comes first, as with `python -m`.

    Raises:
        CaffejaxError: if there is no such module. What one raises itself passes as it is.
    """
    if names and os.getcwd() not in map(os.path.abspath, sys.path):
        sys.path.insert(0, os.getcwd())
    for name in names:
        try:
            importlib.import_module(name)
        except ModuleNotFoundError as error:
            if error.name is None or not f"{name}.".startswith(f"{error.name}."):
                raise  # of a module that it imports
            places = f"{os.getcwd()} and the rest of sys.path; PYTHONPATH can name more folders"
            raise CaffejaxError(f"--import={name}: there is no module '{error.name}' in {places}") from None
