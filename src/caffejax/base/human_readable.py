"""Sizes and counts as text for people, and sizes parsed from text."""

from __future__ import annotations

import re
from collections.abc import Sequence

_UNITS = {"": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30}


def parse_bytes(text: str) -> int:
    """Return the number of bytes in a text such as "8GiB", "500MB" or "1000".

    Raises:
        ValueError: if the text is not a size, or the size is 0.
    """
    match = re.fullmatch(r"(\d{1,18}(?:\.\d+)?) ?([KMG]I?B|)", text.strip().upper())
    if match is None or not (size := int(float(match[1]) * _UNITS[match[2]])):
        raise ValueError(
            f"'{text}' is not a size; give a number of bytes, with or without a unit, such as 8GiB or 500MB"
        )
    return size


def format_bytes(size: float) -> str:
    """Format a number of bytes with a binary unit: "1.25 GiB"."""
    for unit in ("bytes", "KiB", "MiB"):
        if abs(size) < 1024:
            return f"{size:.4g} {unit}"
        size /= 1024
    return f"{size:.2f} GiB" if abs(size) < 1024 else f"{size / 1024:.2f} TiB"


def format_count(n: int, thing: str) -> str:
    """Format a count with its noun: "1 layer", "1,000 layers"."""
    return f"{n:,} {thing}{'' if n == 1 else 's'}"


def format_list(items: Sequence[object], limit: int) -> str:
    """Format the first items, separated by commas, and the number of further ones: "a, b and 3 more"."""
    num_omitted = len(items) - limit
    return ", ".join(map(str, items[:limit])) + (f" and {num_omitted} more" if num_omitted > 0 else "")


def format_number(n: int) -> str:
    """Format a count with a decimal unit: "60.97 M"; "-" for 0."""
    for unit, size in (("G", 10**9), ("M", 10**6), ("k", 10**3)):
        if n >= size:
            return f"{n / size:.4g} {unit}"
    return str(n) if n else "-"


def format_shape(shape: tuple[int, ...]) -> str:
    """Format a shape for messages: `(3, 32, 40)` as "3x32x40"."""
    return "x".join(map(str, shape))
