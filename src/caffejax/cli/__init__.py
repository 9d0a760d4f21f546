"""The `caffejax` command. Importing this package does not import jax; the commands import it when they run."""

from __future__ import annotations

import argparse
import itertools
import os
import sys
import textwrap
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

from .._version import __version__
from ..base.errors import UNKNOWN_TYPE, CaffejaxError
from ..cpu.process_settings import compile_for_absent_devices, tune_process
from . import (
    check,
    classify,
    compare,
    completion,
    compute_image_mean,
    convert,
    convert_annoset,
    convert_imageset,
    convert_imageset_and_flow,
    demo,
    detect,
    device_flags,
    device_query,
    draw,
    dump,
    export,
    extract_features,
    gradcheck,
    info,
    layers,
    net_flags,
    parse_log,
    plan,
    plot,
    plot_training_log,
    predict,
    run,
    signal_handlers,
    summary,
    supervisor,
    test,
    time,
    tools,
    train,
    upgrade,
    view,
)
from .convert_datasets import convert_cifar_data, convert_mnist_data, convert_mnist_siamese_data
from .draw import draw_net
from .dump import collect
from .example_programs import classification, ssd_detect
from .image_lists import create_label_map, get_image_size
from .parser import Parser
from .upgrade import upgrade_net_proto_binary, upgrade_net_proto_text, upgrade_solver_proto_text

# modules or classes that have HELP, EXAMPLE, `add_flags` and `run`, and are named like the commands
_COMMANDS_BY_TASK: dict[str, tuple[Any, ...]] = {
    "train and run": (train, test, predict, time),
    "inspect a model": (check, summary, view, draw),
    "compare and verify": (gradcheck, dump, compare),
    "export and plan": (export, convert, plan),
    "plot training": (plot,),
    "other commands": (demo, layers, run, upgrade, info, completion),
}
_CAFFE_TOOLS = (  # including its scripts, and tools of its forks
    *(
        classify,
        detect,
        classification,
        ssd_detect,
        extract_features,
        convert_imageset,
        convert_annoset,
        convert_imageset_and_flow,
        convert_mnist_data,
    ),
    *(convert_mnist_siamese_data, convert_cifar_data, compute_image_mean, create_label_map, get_image_size),
    *(parse_log, plot_training_log, draw_net, device_query, tools, collect),
    *(upgrade_net_proto_text, upgrade_net_proto_binary, upgrade_solver_proto_text),
)
_CAFFE_COMMANDS = (train, test, time, device_query)  # of Caffe's program `caffe`, where they share all flags
_CAFFE_FLAGS = {"gpu", "solver", "model", "phase", "level", "stage", "snapshot", "weights", "iterations"} | {
    "sigint_effect",
    "sighup_effect",
}
_NET_COMMANDS = (
    *(train, test, predict, time, summary, gradcheck, dump, collect, compare, draw, extract_features, classify, detect),
    *(device_query, info, run, classification, ssd_detect),
)
_IMPORT_HINT = (
    "--import=MODULE imports a module that registers a layer type of your own; the documentation's page "
    "'Adding a layer' shows how to write one"
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; return its exit code: 0 for success, 1 for an error in the input, 130 if interrupted.

    Raises:
        SystemExit: with code 2 for an error in the command line, with code 0 after `--help`.
    """
    if arguments is None:
        signal_handlers.open_missing_streams()
    words = sys.argv[1:] if arguments is None else arguments
    options = make_parser(None if "completion" in words else words).parse_args(words)  # it lists the flags of all
    if arguments is None and device_flags.is_multiprocess(options) and not supervisor.is_supervised():
        return supervisor.supervise(options.process_id, options.start_timeout)
    try:
        with nullcontext() if arguments is not None else signal_handlers.handle_ctrl_c():
            _apply_process_settings(options)
            options.command.run(options)
        if sys.stdout is not None:
            sys.stdout.flush()
    except CaffejaxError as error:
        for problem in error.problems:
            print(f"caffejax: {problem}", file=sys.stderr)
        if any(problem.message.startswith(UNKNOWN_TYPE) for problem in error.problems):
            print(f"caffejax: {_IMPORT_HINT}", file=sys.stderr)
        return 1
    except BrokenPipeError:
        _discard_stdout()  # the reader of the output, such as `head`, has closed the pipe
        return 1
    except OSError as error:
        if not _is_stdout_broken():
            raise
        _discard_stdout()
        print(f"caffejax: the output cannot be written: {error.strerror}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("caffejax: interrupted", file=sys.stderr)
        return 130
    return 0


def _apply_process_settings(options: argparse.Namespace) -> None:
    """Apply the command's process-wide settings and import the user's modules."""
    if options.command in _NET_COMMANDS:
        tune_process()
    elif options.command is plan:
        compile_for_absent_devices()
    net_flags.import_modules(getattr(options, "imports", None) or ())


def _is_stdout_broken() -> bool:
    """Return whether writing to stdout fails, for example because the disk is full."""
    try:
        os.write(1, b"\n")
    except OSError:
        return True
    return False


def _discard_stdout() -> None:
    """Redirect stdout to /dev/null, so that Python does not try to write its remaining buffer at exit."""
    null_fd = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null_fd, 1)
    os.close(null_fd)


def make_parser(words: Sequence[str] | None = None) -> Parser:
    """Return the parser of all commands. With `words`, only the commands among them have their flags."""
    parser = Parser(
        prog="caffejax",
        usage="caffejax COMMAND ...",
        description="Run Caffe models on JAX: train, test, check and export them.",
        epilog=_format_overview(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"caffejax {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True, prog="caffejax")
    for command in (*itertools.chain(*_COMMANDS_BY_TASK.values()), *_CAFFE_TOOLS):
        name = _get_name(command)
        subparser = commands.add_parser(
            name,
            help=command.HELP,
            description=command.__doc__,
            epilog=f"example: {command.EXAMPLE}",
            allow_abbrev=False,
        )
        if words is None or name in words:  # all flags take as long as all else here
            command.add_flags(subparser)
        if command in _CAFFE_COMMANDS:
            subparser.ignored_flags = _CAFFE_FLAGS
        subparser.set_defaults(command=command, parser=parser)
    parser.subparsers = commands.choices
    return parser


def _get_name(command: Any) -> str:
    return str(command.__name__).rsplit(".", 1)[-1]


def _format_overview() -> str:
    lines = []
    for title, commands in _COMMANDS_BY_TASK.items():
        lines += [f"{title}:", *(f"  {_get_name(command):11} {command.HELP}" for command in commands), ""]
    lines += [
        "Caffe's other tools:",
        *textwrap.wrap("  ".join(map(_get_name, _CAFFE_TOOLS)), 92, **_INDENT_OPTIONS),
        "",
    ]
    return "\n".join([*lines, *textwrap.wrap(_NOTES, 92)])


_INDENT_OPTIONS: Any = {"initial_indent": "  ", "subsequent_indent": "  ", "fix_sentence_endings": False}
_NOTES = (
    "`caffejax COMMAND --help` explains a command, with an example. First time here? `caffejax check FOLDER` reports "
    "which of your models load. Flags may be written with one dash or two, and with _ or - between words. Compiled "
    "programs are stored in ~/.cache/caffejax; the environment variable CAFFEJAX_CACHE selects a different folder, or "
    "turns this off (CAFFEJAX_CACHE=off). CAFFEJAX_DEVICE=cpu runs scripts with -gpu, or with solver_mode GPU, on the "
    "CPU. Freed memory is kept for later steps (CAFFEJAX_KEEP_FREED_MEMORY=off turns "
    "this off)."
)
