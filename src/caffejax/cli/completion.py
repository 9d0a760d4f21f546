"""Print a shell script that completes commands and flags."""

from __future__ import annotations

import argparse
from types import ModuleType
from typing import TYPE_CHECKING, Any

from ..base.errors import CaffejaxError

if TYPE_CHECKING:
    from .parser import Parser

HELP = "print a script that completes commands and flags in a shell"
EXAMPLE = "caffejax completion bash > ~/.local/share/bash-completion/completions/caffejax"
_SHELLS = ("bash", "zsh", "tcsh")


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the command's flags."""
    parser.add_argument("shell", help="the shell that reads the script", choices=_SHELLS)


def run(options: argparse.Namespace) -> None:
    """Print the script."""
    shtab = _import_shtab()
    parser: Parser = options.parser
    for command in parser.subparsers.values():
        for action in command._actions:
            action.option_strings = action.option_strings[:1]
            if action.nargs != 0 and action.choices is None and action.type is None:
                action.complete = shtab.FILE  # type: ignore[attr-defined]  # shtab reads this attribute
    print(shtab.complete(parser, shell=options.shell))


def _import_shtab() -> ModuleType | Any:
    try:
        import shtab
    except ImportError as error:
        raise CaffejaxError("completion needs shtab: pip install shtab") from error
    return shtab
