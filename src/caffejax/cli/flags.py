"""Flags that several commands share, with the spellings of Caffe's flags: `--name=value`, `-name value`."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import Any

from ..base.atomic_write import check_writable
from ..base.config import LIMIT_FIELDS, FlagKind, NetConfig, get_choices
from ..base.errors import CaffejaxError
from ..base.human_readable import parse_bytes
from ..base.paths import split_commas as _split_commas

DATABASES = ("lmdb", "leveldb")
ParserOrGroup = argparse.ArgumentParser | argparse._ArgumentGroup  # a parser or a group of its flags


def get_group(parser: argparse.ArgumentParser, title: str) -> ParserOrGroup:
    """Return the parser's group of flags with this title, which is added if it is missing."""
    for group in parser._action_groups:
        if group.title == title:
            return group
    return parser.add_argument_group(title)


def add(parser: ParserOrGroup, name: str, help: str, **settings: Any) -> None:
    """Add a flag, spelled with one or two dashes, and with `_` or `-` between words: `--debug_nans`, `-debug-nans`.

    `settings` are passed to argparse's `add_argument`.
    """
    spellings = dict.fromkeys((name, name.replace("_", "-")))
    settings = {"dest": name, **settings}
    parser.add_argument(*(f"{dashes}{s}" for s in spellings for dashes in ("--", "-")), help=help, **settings)


def add_switch(
    parser: ParserOrGroup, name: str, help: str, dest: str | None = None, default: bool | None = False
) -> None:
    """Add a flag that is off by default, in gflags' spellings: `--gray`, `-gray`, `--gray=false`, `--nogray`.

    With the default None, a command can tell `--nogray` from no flag.
    """
    add(parser, name, help, dest=dest or name, action="store_true", default=default)


def add_json_flag(parser: ParserOrGroup, help: str = "print JSON") -> None:
    """Add `--json`, which makes a command print its results by `print_json`."""
    add_switch(parser, "json", help)


def print_json(values: Any) -> None:
    """Print values as JSON. Non-finite floats become strings: "NaN", "Infinity" or "-Infinity"."""
    from ..tools.logs import to_json_values

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


def parse_seed(text: str) -> int:
    """Parse a seed that JAX and all of NumPy's generators take: an unsigned 32-bit integer."""
    if not text.isdecimal() or int(text) >= 2**32:
        raise argparse.ArgumentTypeError(f"'{text}' is not a seed, which must be an integer from 0 to 2**32 - 1")
    return int(text)


def parse_level(text: str) -> int:
    """Parse a net's level: a signed 32-bit integer, as in Caffe's schema."""
    try:
        level = int(text)
    except ValueError:
        level = 2**31
    if not -(2**31) <= level < 2**31:
        raise argparse.ArgumentTypeError(f"'{text}' is not a level, which must be a signed 32-bit integer")
    return level


def parse_size(text: str) -> int:
    """Parse a number of bytes, such as "8GiB", to an integer."""
    try:
        return parse_bytes(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


split_commas = _split_commas  # the commands read lists with it


def add_backend_flag(parser: argparse.ArgumentParser, default: str = DATABASES[0]) -> None:
    """Add `--backend`."""
    add(parser, "backend", "the database format", choices=DATABASES, default=default)


_PARSERS: dict[FlagKind, tuple[Callable[[str], Any], str]] = {
    "bytes": (parse_size, "SIZE"),
    "count": (parse_count, "N"),
    "positive": (parse_positive, "N"),
    "paths": (_split_commas, "FILES"),
}
_DATA_OPTIONS = ("workers", "skip_bad", *LIMIT_FIELDS)


def add_options(parser: argparse.ArgumentParser, *names: str) -> None:
    """Add flags for the fields `names` of `NetConfig`.

    Without `names`, add flags for all fields except the limits on files.
    """
    names = names or tuple(f.name for f in fields(NetConfig) if f.name not in LIMIT_FIELDS)
    for title, of_data in (("how it computes", False), ("how data is read", True)):
        if group := [name for name in names if (name in _DATA_OPTIONS) == of_data]:
            add_fields(parser, NetConfig, group, title)


def add_fields(
    parser: argparse.ArgumentParser, config_class: type, names: Sequence[str] = (), title: str = "", **defaults: Any
) -> None:
    """Add a flag for each field that a configuration class defines by `option`.

    Args:
        parser: the command's parser.
        config_class: a class of `caffejax.base.config`.
        names: the fields to add; default: all fields.
        title: the title of the group of these flags in the help; default: no group.
        defaults: default values by field name, which replace the class's defaults.
    """
    group = get_group(parser, title) if title else parser
    for field in fields(config_class):
        if not field.metadata or (names and field.name not in names):
            continue
        name, default = field.metadata["flag"] or field.name, defaults.get(field.name, field.default)
        if isinstance(default, bool):
            add_switch(group, name, field.metadata["help"], dest=field.name)
            continue
        parse, metavar = _PARSERS.get(field.metadata["kind"], (None, None))
        add(
            group,
            name,
            field.metadata["help"],
            dest=field.name,
            default=default,
            type=parse,
            choices=get_choices(config_class, field.name) or None,
            metavar=field.metadata["metavar"] or metavar,
        )


def make_config(options: argparse.Namespace) -> NetConfig:
    """Return a `NetConfig` from the command's flags; fields without a flag have their defaults."""
    return NetConfig(**get_field_values(NetConfig, options))


def get_field_values(config_class: type, options: argparse.Namespace) -> dict[str, Any]:
    """Return values for the fields of the configuration class `config_class`, by name, from the command's flags."""
    return {f.name: getattr(options, f.name) for f in fields(config_class) if f.metadata and hasattr(options, f.name)}


def check_output_path(out: str, *inputs: str | None) -> None:
    """Check that the file `out` can be written and would not overwrite a file that the command reads.

    Raises:
        CaffejaxError: if `out` cannot be written, or is one of the files `inputs`.
    """
    output_path = check_writable(out)
    if any(path is not None and os.path.realpath(path) == str(output_path) for path in inputs):
        raise CaffejaxError(f"{out}: the output would overwrite an input file; name a different output file")
