"""Source text laid out as `ruff format` lays it out, at 120 columns."""

from __future__ import annotations

from collections.abc import Iterator

WIDTH = 120
_OPEN, _CLOSE = "([{", ")]}"


def laid_out(text: str, indent: int) -> list[str]:
    """Return the lines of a statement, broken at brackets where it is too long."""
    margin = " " * indent
    if len(margin + text) <= WIDTH:
        return [margin + text]
    start = _last_bracket(text)
    if start is None:
        return _in_brackets(text, indent)
    head, body, tail = text[: start + 1], text[start + 1 : -1], text[-1]
    if not text.endswith(tuple(_CLOSE)):
        return [margin + text]
    if len(margin) + 4 + len(body) <= WIDTH:
        return [margin + head, f"{margin}    {body}", margin + tail]
    items = [line for item in _items(body) for line in laid_out(f"{item},", indent + 4)]
    return [margin + head, *items, margin + tail]


def _in_brackets(text: str, indent: int) -> list[str]:
    """Return the lines of `name = a + b` and the like, with brackets put round the sum."""
    margin = " " * indent
    head, sign, value = text.partition(" = ") if not text.startswith("return ") else ("return", " ", text[7:])
    inner = f"{margin}    {value}"
    terms = value.replace(" + ", "\n+ ").replace(" - ", "\n- ").split("\n")
    lines = [inner] if len(inner) <= WIDTH else [f"{margin}    {term}" for term in terms]
    return [f"{margin}{head}{sign}(", *lines, f"{margin})"]


def _last_bracket(text: str) -> int | None:
    """Return where the bracket opens that the text ends with, a comma aside."""
    depth = 0
    end = len(text) - 1
    if text[end] not in _CLOSE:
        return None
    for at in range(end, -1, -1):
        depth += (text[at] in _CLOSE) - (text[at] in _OPEN)
        if depth == 0:
            return at
    return None


def _items(body: str) -> Iterator[str]:
    """Yield what stands between the commas that are in no further brackets."""
    depth, start = 0, 0
    for at, letter in enumerate(body):
        depth += (letter in _OPEN) - (letter in _CLOSE)
        if letter == "," and depth == 0:
            yield body[start:at].strip()
            start = at + 1
    if body[start:].strip():
        yield body[start:].strip()
