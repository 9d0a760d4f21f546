"""Flags that several commands take, spelled as Caffe's: `--name=value`, `-name value`."""

from __future__ import annotations

import argparse
from dataclasses import fields
from typing import Any

from ..options import LIMITS, Reading, Run, choices
from ..sizes import bytes_in

DATABASES = ("lmdb", "leveldb")
Flags = argparse.ArgumentParser | argparse._ArgumentGroup  # what flags are added to


def group(parser: argparse.ArgumentParser, title: str) -> Flags:
    """Return the group of a command's flags that has this title in its help; it is made when first asked for."""
    for found in parser._action_groups:
        if found.title == title:
            return found
    return parser.add_argument_group(title)


def add(parser: Flags, name: str, help: str, **more: Any) -> None:
    """Add a flag with one dash and with two; `debug_nans` may be spelled `debug-nans` as well."""
    spellings = dict.fromkeys((name, name.replace("_", "-")))
    more = {"dest": name, **more}
    parser.add_argument(*(f"{dashes}{s}" for s in spellings for dashes in ("--", "-")), help=help, **more)


def add_switch(parser: Flags, name: str, help: str, dest: str | None = None) -> None:
    """Add a flag that is off unless given, in gflags' spellings: `--gray`, `-gray`, `--gray=false`, `--nogray`."""
    dest = dest or name
    add(parser, name, help, dest=dest, action="store_true")
    for value, spellings in (True, ("=true", "=1")), (False, ("=false", "=0")):
        for spelling in spellings:
            add(parser, name + spelling, argparse.SUPPRESS, dest=dest, action="store_const", const=value)
    add(parser, f"no{name}", argparse.SUPPRESS, dest=dest, action="store_const", const=False)


def count(text: str) -> int:
    """Parse a number from 0 on."""
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"'{text}' is not a number from 0 on")
    return int(text)


def positive(text: str) -> int:
    """Parse a number from 1 on."""
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"'{text}' is not a positive number")
    return int(text)


def level(text: str) -> int:
    """Parse a net's level: a whole number of 32 bits, as the schema has it."""
    try:
        number = int(text)
    except ValueError:
        number = 2**31
    if not -(2**31) <= number < 2**31:
        raise argparse.ArgumentTypeError(f"'{text}' is not a level: a whole number of at most 32 bits")
    return number


def size(text: str) -> int:
    """Parse a number of bytes, such as "8GiB"."""
    try:
        return bytes_in(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def several(text: str | None) -> list[str]:
    """Return what a flag names, with commas between; nothing if it is not given."""
    return [name for name in (text or "").split(",") if name]


def add_backend_flag(parser: argparse.ArgumentParser) -> None:
    """Add `--backend`."""
    add(parser, "backend", "the kind of database", choices=DATABASES, default=DATABASES[0])


# fields of `Run` and `Reading` that are flags; choices and defaults are the field's own
_OPTIONS: dict[str, dict[str, Any]] = {
    "kernels": {"help": "fast formulations of the operations, or the plain lowering to compare with"},
    "precision": {"help": "dtype of products and activations; params and sums are float32 always"},
    "backward": {"help": "gradients by autodiff, or by the layers' hand-written rules"},
    "remat": {"help": "auto: where memory would not suffice, compute layers again in the backward pass"},
    "memory_limit": {
        "help": "what training may take; what is free unless given",
        "type": size,
        "metavar": "SIZE",
    },
    "sync_bn": {"help": "BatchNorm's statistics over the batches of all devices; else each device has its own"},
    "workers": {"help": "read each data layer in this many processes; 0 for threads", "type": count, "metavar": "N"},
    "skip_bad": {"help": "take the next image for one that cannot be decoded, with a warning"},
    "max_image_pixels": {
        "help": "how many pixels an image may have; larger ones are refused before they are decoded",
        "type": positive,
        "metavar": "N",
    },
    "max_hdf5_bytes": {
        "help": "what an HDF5 file of data may unpack to, beyond the bytes in it",
        "type": size,
        "metavar": "SIZE",
    },
    "no_python_layers": {"help": "refuse layers that run Python code of modules, before any is imported"},
}
_SPELLED = {"skip_bad": "skip_bad_images"}
COMPUTES = "how it computes"
_KINDS = {COMPUTES: Run, "how data is read": Reading}
_DEFAULTS = {field.name: field.default for kind in _KINDS.values() for field in fields(kind)}
_TITLES = {field.name: title for title, kind in _KINDS.items() for field in fields(kind)}


def add_options(parser: argparse.ArgumentParser, *names: str) -> None:
    """Add flags for these fields of `Run` and `Reading`; if none is named, for all that are flags and no limits."""
    for name in names or (name for name in _OPTIONS if name not in LIMITS):
        default, spelling = _DEFAULTS[name], _SPELLED.get(name, name)
        titled = group(parser, _TITLES[name])
        if isinstance(default, bool):
            add_switch(titled, spelling, dest=name, **_OPTIONS[name])
        else:
            add(titled, spelling, dest=name, default=default, choices=choices(name) or None, **_OPTIONS[name])


def run_of(options: argparse.Namespace) -> Run:
    """Return how a net computes, by those of the flags that a command has."""
    return Run(**_fields_of(Run, options))


def reading_of(options: argparse.Namespace) -> Reading:
    """Return how a net's data is read, likewise."""
    return Reading(**_fields_of(Reading, options))


def _fields_of(kind: type[Run | Reading], options: argparse.Namespace) -> dict[str, Any]:
    return {field.name: getattr(options, field.name) for field in fields(kind) if hasattr(options, field.name)}
