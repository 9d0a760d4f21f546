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
    found = _brackets(text)
    if found is None:
        return _in_brackets(text, indent)
    head, body, tail = text[: found[0] + 1], text[found[0] + 1 : found[1]], text[found[1] :]
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


def _brackets(text: str) -> tuple[int, int] | None:
    """Return where the brackets open and close that are broken: those of a definition, or those at the end."""
    depth, opened = 0, -1
    for at, letter in enumerate(text):
        if letter in _OPEN:
            opened = at if depth == 0 else opened
            depth += 1
        elif letter in _CLOSE:
            depth -= 1
            if depth == 0 and (text.startswith("def ") or not text[at + 1 :].strip(",")):
                return opened, at
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
