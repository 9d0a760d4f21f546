"""Cases made small: files, tokens and bytes left out for as long as the finding stays the same (delta debugging)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from .harness import Files
from .mutators.tokens import split

T = TypeVar("T")
Same = Callable[[Files], bool]


class OutOfTimeError(Exception):
    """Raised by `same` when the time is over; the result is the smallest case until then."""


def shrink(files: Files, same: Same, intact: Files | None = None, *, text: bool = False) -> Files:
    """Return fewer, smaller files with which a case still ends the same.

    Args:
        files: the case's.
        same: says whether other files end so.
        intact: what they were made of; bytes are put back where they do not matter, so that what does can be seen.
        text: whether to leave out tokens rather than bytes.
    """
    names = fewer(sorted(files), lambda some: same({name: files[name] for name in some}))
    files = {name: files[name] for name in names}
    for name in names:
        before = (intact or {}).get(name, files[name])
        if files[name] == before and intact is not None:
            continue
        if len(before) == len(files[name]):
            files[name] = _put_back(files[name], before, lambda content, name=name: same({**files, name: content}))  # type: ignore[misc]
        files[name] = _left_out(files[name], lambda content, name=name: same({**files, name: content}), text)  # type: ignore[misc]
    return files


def fewer(units: Sequence[T], same: Callable[[list[T]], bool]) -> list[T]:
    """Remove as many units as possible, in runs of half of them, a quarter, and so on down to one."""
    result = list(units)
    size = max(1, len(result) // 2)
    while True:
        at, left_out = 0, False
        while at < len(result):
            rest = result[:at] + result[at + size :]
            try:
                is_same = same(rest)
            except OutOfTimeError:
                return result
            if is_same:
                result, left_out = rest, True
            else:
                at += size
        if size == 1 and not left_out:
            return result
        size = max(1, size // 2)


def _left_out(content: bytes, same: Callable[[bytes], bool], text: bool) -> bytes:
    if text:
        tokens = split(content.decode("utf-8", "surrogateescape"))
        return "".join(fewer(tokens, lambda some: same("".join(some).encode("utf-8", "surrogateescape")))).encode(
            "utf-8", "surrogateescape"
        )
    return bytes(fewer(content, lambda some: same(bytes(some))))


def _put_back(content: bytes, before: bytes, same: Callable[[bytes], bool]) -> bytes:
    """Keep as few of the changed bytes as can be."""
    places = [i for i in range(len(content)) if content[i] != before[i]]

    def changed(some: Sequence[int]) -> bytes:
        result = bytearray(before)
        for i in some:
            result[i] = content[i]
        return bytes(result)

    return changed(fewer(places, lambda some: same(changed(some))))
