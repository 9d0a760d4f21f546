"""The `caffejax` command. Importing this package does not import jax; the commands import it when they run."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

from .._version import __version__
from ..errors import UNKNOWN_TYPE, CaffejaxError
from ..process import compile_for_absent_devices, hide_late_errors, tune_process
from . import (
    check,
    classify,
    collect,
    compare,
    completion,
    compute_image_mean,
    convert,
    convert_annoset,
    convert_imageset,
    detect,
    device_flags,
    device_query,
    draw_net,
    export,
    extract_features,
    features,
    filters,
    gradcheck,
    memory,
    net_flags,
    parse_log,
    plan,
    plot,
    plot_training_log,
    run,
    signals,
    summary,
    supervisor,
    test,
    time,
    tools,
    train,
    upgrade_net_proto_binary,
    upgrade_net_proto_text,
    upgrade_solver_proto_text,
    view,
)
from .convert_datasets import convert_cifar_data, convert_mnist_data, convert_mnist_siamese_data
from .image_lists import create_label_map, get_image_size
from .parser import Parser

# modules, or classes, with HELP, EXAMPLE, `add_flags` and `run`, named as the commands
_COMMANDS: tuple[Any, ...] = (
    train,
    test,
    time,
    summary,
    memory,
    plan,
    check,
    gradcheck,
    collect,
    compare,
    export,
    convert,
    convert_imageset,
    convert_annoset,
    convert_mnist_data,
    convert_mnist_siamese_data,
    convert_cifar_data,
    get_image_size,
    create_label_map,
    compute_image_mean,
    extract_features,
    features,
    filters,
    classify,
    detect,
    view,
    draw_net,
    plot,
    parse_log,
    plot_training_log,
    device_query,
    upgrade_net_proto_text,
    upgrade_net_proto_binary,
    upgrade_solver_proto_text,
    run,
    tools,
    completion,
)
_ON_NETS = (
    train,
    test,
    time,
    summary,
    memory,
    gradcheck,
    collect,
    compare,
    extract_features,
    features,
    filters,
    classify,
    detect,
    device_query,
    run,
)
_OWN_TYPES = (
    "--import=MODULE imports a module that registers a layer type of your own; the documentation's page "
    "'Adding a layer' shows how to write one"
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; return its exit code: 0 for success, 1 for an error in the input, 130 if interrupted.

    Raises:
        SystemExit: with code 2 for an error in the command line, with code 0 after `--help`.
    """
    if arguments is None:
        signals.open_missing_streams()
    parser = _parser()
    options = parser.parse_args(sys.argv[1:] if arguments is None else arguments)
    if arguments is None and device_flags.trains_with_others(options) and not supervisor.is_supervised():
        return supervisor.supervise(options.process_id, options.start_timeout)
    try:
        with nullcontext() if arguments is not None else signals.handle_ctrl_c():
            _prepare(options)
            options.command.run(options)
        if sys.stdout is not None:
            sys.stdout.flush()
    except CaffejaxError as error:
        for problem in error.problems:
            print(f"caffejax: {problem}", file=sys.stderr)
        if any(problem.message.startswith(UNKNOWN_TYPE) for problem in error.problems):
            print(f"caffejax: {_OWN_TYPES}", file=sys.stderr)
        return 1
    except BrokenPipeError:
        _discard_stdout()  # the reader of the output, such as `head`, has closed the pipe
        return 1
    except OSError as error:
        if not _stdout_fails():
            raise
        _discard_stdout()
        print(f"caffejax: the output cannot be written: {error.strerror}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("caffejax: interrupted", file=sys.stderr)
        return 130
    return 0


def _prepare(options: argparse.Namespace) -> None:
    """Apply the command's process-wide settings and import the user's modules."""
    if options.command in (*_ON_NETS, convert, export):
        hide_late_errors()
    if options.command in _ON_NETS:
        tune_process()
    elif options.command is plan:
        compile_for_absent_devices()
    net_flags.import_modules(getattr(options, "imports", None) or ())


def _stdout_fails() -> bool:
    """Return whether writing to stdout fails, for example because the disk is full."""
    try:
        os.write(1, b"\n")
    except OSError:
        return True
    return False


def _discard_stdout() -> None:
    """Redirect stdout to /dev/null, so that Python does not try to write the rest of its buffer at exit."""
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 1)
    os.close(nothing)


def _parser() -> Parser:
    parser = Parser(
        prog="caffejax",
        description="Train and test Caffe models on JAX, convert their weights and make their databases.",
        epilog="Commands that run nets store compiled programs in ~/.cache/caffejax (the environment variable "
        "CAFFEJAX_CACHE names another folder, or off) and keep freed memory for later runs (CAFFEJAX_BLOCKS=off "
        "turns this off). Flags may be written with one dash or two, and with _ or - between words. "
        "Example: caffejax train --solver=configs/digits/lenet_solver.prototxt",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"caffejax {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="<command>", required=True, prog="caffejax")
    for command in _COMMANDS:
        sub = commands.add_parser(
            command.__name__.rsplit(".", 1)[-1],
            help=command.HELP,
            description=command.__doc__,
            epilog=f"example: {command.EXAMPLE}",
            allow_abbrev=False,
        )
        command.add_flags(sub)
        sub.set_defaults(command=command, parser=parser)
    parser.of_commands = commands.choices
    return parser
