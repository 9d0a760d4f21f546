"""Flags that select a net and its weights, and functions that build a net, a graph or variables from the flags."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ..base.config import LIMIT_FIELDS, NetConfig, TrainConfig
from ..base.errors import CaffejaxError, Problem
from . import flags
from .parser import HIDDEN_TITLE, Parser

if TYPE_CHECKING:
    from ..base.variables import Variables
    from ..core.graph import Graph
    from ..core.layers.context import Phase
    from ..core.program.net import Net
    from ..core.schema.caffe_pb2 import NetParameter, NetState
    from ..tools.model_check.placeholder_sources import AssumedGraph


def add_net_argument(parser: argparse.ArgumentParser, help: str = "the net prototxt") -> None:
    """Add the argument NET, which may also be written as Caffe's flags `--model=NET` and `--model_def=NET`."""
    add_first_argument(parser, "NET", help, "model", "model_def")


def add_first_argument(parser: argparse.ArgumentParser, metavar: str, help: str, name: str, *aliases: str) -> None:
    """Add the first positional argument, which may also be written as Caffe's flag `--name=...` or `--alias=...`."""
    parser.add_argument(name, help=f"{help}; also --{name}={metavar}", metavar=metavar)
    if isinstance(parser, Parser):
        parser.positional_flags |= {name, *aliases}


def add_flags(parser: argparse.ArgumentParser, phase: Phase | None = None) -> None:
    """Add NET, `--phase` and the flags of `add_state_flags`. If `phase` is not None, `--phase` is not added."""
    add_net_argument(parser)
    if phase is None:
        flags.add(parser, "phase", "the net's phase", choices=("TRAIN", "TEST"), default="TRAIN")
    else:
        parser.set_defaults(phase=phase)
    add_state_flags(parser)


def add_state_flags(parser: argparse.ArgumentParser) -> None:
    """Add `--level` and `--stage`, and the flags of `add_import_and_limit_flags`."""
    group = flags.get_group(parser, "the net's state")
    flags.add(group, "level", "the net's level", type=flags.parse_level, default=0)
    flags.add(group, "stage", "the net's stages, separated by commas", default="", metavar="A,B")
    add_import_and_limit_flags(parser)


def add_import_and_limit_flags(parser: argparse.ArgumentParser) -> None:
    """Add `--import` and the limits on untrusted files: the flags of every command that builds nets."""
    add_import_flag(parser)
    flags.add_fields(parser, NetConfig, LIMIT_FIELDS, HIDDEN_TITLE)


def get_stages(options: argparse.Namespace) -> list[str]:
    """Return the list of stages in `--stage`."""
    return flags.split_commas(options.stage)


def build_net(options: argparse.Namespace) -> Net:
    """Build the net that the command's flags select.

    Raises:
        GraphError: if the net has no layers, or is invalid; the error lists all problems.
        CaffejaxError: if the prototxt or a file of `--weights` does not exist.
    """
    from ..base.paths import check_exist
    from ..core.program.net import Net

    check_exist([options.model, *flags.split_commas(getattr(options, "weights", None))])

    net = Net(
        Path(options.model),
        options.phase,
        level=options.level,
        stages=get_stages(options),
        config=flags.make_config(options),
    )
    _require_layers(net.graph, options)
    return net


def build_graph(options: argparse.Namespace) -> tuple[Graph, bool]:
    """Build the graph of the net that the flags select. The sources of data layers need not exist.

    Return the graph, and whether the size of its images is a guess.

    Shapes that are assumed for missing sources are logged as warnings.

    Raises:
        CaffejaxError: see `build_net`; also if the source of a data layer is missing and the layer's settings do not
            determine its shapes.
    """
    from ..base.paths import check_exist
    from ..core.graph import make_net_state
    from ..core.schema import read_valid_part

    check_exist([options.model])
    path = Path(options.model)
    message, problems = read_valid_part(path)
    state = make_net_state(message, options.phase, options.level, get_stages(options))
    candidate = assume_shapes(message, state, path, flags.make_config(options), problems)
    _require_layers(candidate.graph, options)
    return candidate.graph, candidate.is_guess


def assume_shapes(
    message: NetParameter,
    state: NetState,
    path: Path,
    config: NetConfig,
    problems: Sequence[Problem] = (),
    *,
    check_settings: bool = False,
) -> AssumedGraph:
    """Build the graph of a net whose sources need not exist, and log the shapes that are assumed for missing ones.

    See `build_assumed_graphs` for the arguments.

    Raises:
        CaffejaxError: if the net is invalid, or the source of a data layer is missing and the layer's settings do not
            determine its shapes.
    """
    from ..base.glog import log
    from ..tools.model_check.placeholder_sources import MissingSourceError, build_assumed_graphs

    try:
        candidate = next(build_assumed_graphs(message, state, path, config, problems, check_settings=check_settings))
    except MissingSourceError as error:
        raise CaffejaxError(Problem(str(error), str(path))) from error
    for sentence in candidate.assumptions:
        log.warning("%s", sentence)
    return candidate


def _require_layers(graph: Graph, options: argparse.Namespace) -> None:
    from ..base.errors import GraphError, Problem

    if not graph.layers:
        raise GraphError(Problem(f"the net has no layers in phase {options.phase}", options.model))


def add_strict_flag(parser: argparse.ArgumentParser) -> None:
    """Add `--strict_weights`."""
    flags.add_fields(parser, TrainConfig, ["strict_weights"])


def load_variables(net: Net, files: str | None, strict: bool = False) -> Variables:
    """Return a net's variables with the weights of comma-separated files; later files override earlier ones.

    Blobs that no file contains are initialised by their fillers. If `files` is None, or all files are empty, fillers
    initialise all blobs.

    Raises:
        WeightsError: see `load_weights`.
    """
    from ..core.checkpoints.load_save import drop_empty_files, load_weights

    paths = drop_empty_files(flags.split_commas(files), strict)
    return load_weights(paths, net.graph, net.initializer(), strict)


def add_import_flag(parser: argparse.ArgumentParser) -> None:
    """Add `--import`."""
    flags.add(
        parser,
        "import",
        "a Python module to import first, for example one that registers layer types; may be repeated",
        dest="imports",
        type=_parse_module_name,
        action="append",
        metavar="MODULE",
    )


def _parse_module_name(text: str) -> str:
    if text.endswith(".py"):
        raise argparse.ArgumentTypeError(f"'{text}' is a file; give the module's name, '{text.removesuffix('.py')}'")
    if not all(part.isidentifier() for part in text.split(".")):
        raise argparse.ArgumentTypeError(f"'{text}' is not a valid module name, such as my_layers")
    return text


def import_modules(names: Sequence[str]) -> None:
    """Import the modules `names`. The working directory is searched first, as with `python -m`.

    Raises:
        CaffejaxError: if a module does not exist or raises an exception. The message names the line that raised it.
    """
    if names and os.getcwd() not in map(os.path.abspath, sys.path):
        sys.path.insert(0, os.getcwd())
    for name in names:
        try:
            importlib.import_module(name)
        except CaffejaxError:
            raise
        except (Exception, SystemExit) as error:
            # the module exists if a module that it imports does not
            if isinstance(error, ModuleNotFoundError) and error.name and f"{name}.".startswith(f"{error.name}."):
                search_path = f"{os.getcwd()} or the folders of sys.path; PYTHONPATH can name more folders"
                raise CaffejaxError(f"--import={name}: there is no module '{error.name}' in {search_path}") from None
            raise CaffejaxError(_make_import_problem(name, error)) from error


def _make_import_problem(name: str, error: BaseException) -> Problem:
    """Return the problem of a module that raises `error`, with the innermost line of its traceback."""
    if isinstance(error, SyntaxError):
        return Problem(f"--import={name}: is not Python: {error.msg}", error.filename, error.lineno)
    frames = [f for f in traceback.extract_tb(error.__traceback__) if not f.filename.startswith("<frozen")]
    reason = str(error) if isinstance(error, ImportError) else repr(error)
    if isinstance(error, SystemExit):
        reason = "it ends the program by SystemExit; call sys.exit only under if __name__ == '__main__'"
    message = f"--import={name}: the module cannot be imported: {reason}"
    is_inside = len(frames) > 1  # the first is of this file
    return Problem(message, frames[-1].filename if is_inside else None, frames[-1].lineno if is_inside else None)
