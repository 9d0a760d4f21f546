"""Shrink fuzz cases: remove files, tokens and bytes as long as the finding stays the same (delta debugging)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from .harness import Files
from .mutators.tokens import split_tokens

T = TypeVar("T")
Reproduces = Callable[[Files], bool]


class OutOfTimeError(Exception):
    """Raised by `reproduces` when the time is over; the result is the smallest case until then."""


def shrink(files: Files, reproduces: Reproduces, intact: Files | None = None, *, is_text: bool = False) -> Files:
    """Return fewer, smaller files with which a case still ends the same.

    Args:
        files: the case's.
        reproduces: returns whether other files end in the same way.
        intact: what they were made of; bytes are put back where they do not matter, so that what does can be seen.
        is_text: whether to leave out tokens rather than bytes.
    """
    names = minimise_units(sorted(files), lambda subset: reproduces({name: files[name] for name in subset}))
    files = {name: files[name] for name in names}
    for name in names:
        original = (intact or {}).get(name, files[name])
        if files[name] == original and intact is not None:
            continue
        if len(original) == len(files[name]):
            files[name] = _restore_bytes(
                files[name], original, lambda content, name=name: reproduces({**files, name: content})
            )  # type: ignore[misc]
        files[name] = _shrink_content(
            files[name], lambda content, name=name: reproduces({**files, name: content}), is_text
        )  # type: ignore[misc]
    return files


def minimise_units(units: Sequence[T], reproduces: Callable[[list[T]], bool]) -> list[T]:
    """Remove as many units as possible, in runs of half of them, a quarter, and so on down to one."""
    result = list(units)
    size = max(1, len(result) // 2)
    while True:
        start, has_removed = 0, False
        while start < len(result):
            candidate = result[:start] + result[start + size :]
            try:
                has_reproduced = reproduces(candidate)
            except OutOfTimeError:
                return result
            if has_reproduced:
                result, has_removed = candidate, True
            else:
                start += size
        if size == 1 and not has_removed:
            return result
        size = max(1, size // 2)


def _shrink_content(content: bytes, reproduces: Callable[[bytes], bool], is_text: bool) -> bytes:
    if is_text:
        tokens = split_tokens(content.decode("utf-8", "surrogateescape"))
        return "".join(
            minimise_units(tokens, lambda subset: reproduces("".join(subset).encode("utf-8", "surrogateescape")))
        ).encode("utf-8", "surrogateescape")
    return bytes(minimise_units(content, lambda subset: reproduces(bytes(subset))))


def _restore_bytes(content: bytes, original: bytes, reproduces: Callable[[bytes], bool]) -> bytes:
    """Keep as few of the changed bytes as can be."""
    positions = [i for i in range(len(content)) if content[i] != original[i]]

    def apply_changes(subset: Sequence[int]) -> bytes:
        result = bytearray(original)
        for i in subset:
            result[i] = content[i]
        return bytes(result)

    return apply_changes(minimise_units(positions, lambda subset: reproduces(apply_changes(subset))))
