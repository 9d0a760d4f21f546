"""Modules that a command imports before it reads nets, such as those that register layer types of the user's own."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Sequence

from ..errors import CaffejaxError
from . import flags


def add_flag(parser: argparse.ArgumentParser) -> None:
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
