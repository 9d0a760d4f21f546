"""Tables of text for a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence


def align_columns(rows: Iterable[Sequence[str]], num_text_columns: int) -> Iterator[str]:
    """Yield the rows as lines. The first `num_text_columns` are aligned to the left, the other columns to the right."""
    table = [tuple(map(escape_unprintable, row)) for row in rows]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    sides = "<" * num_text_columns + ">" * len(widths)
    for row in table:
        yield "  ".join(f"{c:{s}{w}}" for c, s, w in zip(row, sides, widths, strict=False)).rstrip()


def escape_unprintable(text: str) -> str:
    """Escape a text if it has unprintable characters, because they could move a terminal's cursor."""
    return text if text.isprintable() else text.encode("unicode_escape").decode("ascii")
