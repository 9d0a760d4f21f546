"""Flags that several commands share, with the spellings of Caffe's flags: `--name=value`, `-name value`."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import Any

from ..atomic_write import check_writable
from ..config import LIMIT_FIELDS, ComputeConfig, DataConfig, FlagKind, get_choices
from ..errors import CaffejaxError
from ..human_readable import parse_bytes

DATABASES = ("lmdb", "leveldb")
Flags = argparse.ArgumentParser | argparse._ArgumentGroup  # a parser or a group of its flags


def get_group(parser: argparse.ArgumentParser, title: str) -> Flags:
    """Return the parser's group of flags with this title. If there is no such group, add it."""
    for existing in parser._action_groups:
        if existing.title == title:
            return existing
    return parser.add_argument_group(title)


def add(parser: Flags, name: str, help: str, **arguments: Any) -> None:
    """Add a flag, spelled with one or two dashes, and with `_` or `-` between words: `--debug_nans`, `-debug-nans`.

    `arguments` are passed to argparse's `add_argument`.
    """
    spellings = dict.fromkeys((name, name.replace("_", "-")))
    arguments = {"dest": name, **arguments}
    parser.add_argument(*(f"{dashes}{s}" for s in spellings for dashes in ("--", "-")), help=help, **arguments)


def add_switch(parser: Flags, name: str, help: str, dest: str | None = None) -> None:
    """Add a flag that is off by default, in gflags' spellings: `--gray`, `-gray`, `--gray=false`, `--nogray`."""
    add(parser, name, help, dest=dest or name, action="store_true")


def add_json(parser: Flags, help: str = "print JSON") -> None:
    """Add `--json`, which makes a command print its results by `print_json`."""
    add_switch(parser, "json", help)


def print_json(values: Any) -> None:
    """Print values as JSON. Non-finite floats become strings: "NaN", "Infinity" or "-Infinity"."""
    from ..logs import to_json_values

    print(json.dumps(to_json_values(values), indent=1, allow_nan=False))


def parse_count(text: str) -> int:
    """Parse an integer of at least 0."""
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"'{text}' is not an integer of at least 0")
    return int(text)


def parse_positive(text: str) -> int:
    """Parse an integer of at least 1."""
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"'{text}' is not a positive integer")
    return int(text)


def parse_level(text: str) -> int:
    """Parse a net's level: a signed 32-bit integer, as in Caffe's schema."""
    try:
        number = int(text)
    except ValueError:
        number = 2**31
    if not -(2**31) <= number < 2**31:
        raise argparse.ArgumentTypeError(f"'{text}' is not a level, which must be a signed 32-bit integer")
    return number


def parse_size(text: str) -> int:
    """Parse a number of bytes, such as "8GiB", to an integer."""
    try:
        return parse_bytes(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def split_commas(text: str | None) -> list[str]:
    """Split a flag's value at its commas and return the list of its parts; the list is empty for None."""
    return [name for name in (text or "").split(",") if name]


def add_backend_flag(parser: argparse.ArgumentParser, default: str = DATABASES[0]) -> None:
    """Add `--backend`."""
    add(parser, "backend", "the database format", choices=DATABASES, default=default)


_PARSERS: dict[FlagKind, tuple[Callable[[str], Any], str]] = {
    "bytes": (parse_size, "SIZE"),
    "count": (parse_count, "N"),
    "positive": (parse_positive, "N"),
    "paths": (split_commas, "FILES"),
}
COMPUTES = "how it computes"
_TITLES: dict[type, str] = {ComputeConfig: COMPUTES, DataConfig: "how data is read"}  # titles of groups of flags


def add_options(parser: argparse.ArgumentParser, *names: str) -> None:
    """Add flags for the fields `names` of `ComputeConfig` and `DataConfig`.

    Without `names`, add flags for all fields except the limits on files.
    """
    for kind in (ComputeConfig, DataConfig):
        add_fields(parser, kind, names or [f.name for f in fields(kind) if f.name not in LIMIT_FIELDS])


def add_fields(
    parser: argparse.ArgumentParser, kind: type, names: Sequence[str] = (), title: str = "", **defaults: Any
) -> None:
    """Add a flag for each field that a configuration class defines by `option`.

    Args:
        parser: the command's parser.
        kind: a class of `caffejax.config`.
        names: the fields to add; default: all fields.
        title: the title of the group of these flags in the help; default: the title that `_TITLES` has for the class.
        defaults: default values by field name, which replace the class's defaults.
    """
    target = get_group(parser, title) if (title := title or _TITLES.get(kind, "")) else parser
    for field in fields(kind):
        if not field.metadata or (names and field.name not in names):
            continue
        name, default = field.metadata["flag"] or field.name, defaults.get(field.name, field.default)
        if isinstance(default, bool):
            add_switch(target, name, field.metadata["help"], dest=field.name)
            continue
        parse, metavar = _PARSERS.get(field.metadata["kind"], (None, None))
        add(
            target,
            name,
            field.metadata["help"],
            dest=field.name,
            default=default,
            type=parse,
            choices=get_choices(kind, field.name) or None,
            metavar=field.metadata["metavar"] or metavar,
        )


def make_compute_config(options: argparse.Namespace) -> ComputeConfig:
    """Return a `ComputeConfig` from the command's flags; fields without a flag have their defaults."""
    return ComputeConfig(**get_fields(ComputeConfig, options))


def make_data_config(options: argparse.Namespace) -> DataConfig:
    """Return a `DataConfig` from the command's flags; fields without a flag have their defaults."""
    return DataConfig(**get_fields(DataConfig, options))


def get_fields(kind: type, options: argparse.Namespace) -> dict[str, Any]:
    """Return values for the fields of the configuration class `kind`, by name, from the command's flags."""
    return {f.name: getattr(options, f.name) for f in fields(kind) if f.metadata and hasattr(options, f.name)}


def check_out(out: str, *inputs: str | None) -> None:
    """Check that the file `out` can be written and would not overwrite a file that the command reads.

    Raises:
        CaffejaxError: if `out` cannot be written, or is one of the files `inputs`.
    """
    target = check_writable(out)
    if any(path is not None and os.path.realpath(path) == str(target) for path in inputs):
        raise CaffejaxError(f"{out}: the output would overwrite an input file; name a different output file")
