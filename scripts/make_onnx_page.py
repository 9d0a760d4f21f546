"""Writes the table of docs/exporting_onnx.md: the ONNX operators of layer types, from their registry.

python scripts/make_onnx_page.py            # writes the page
python scripts/make_onnx_page.py --check    # fails if the page is out of date
"""

from __future__ import annotations

import sys
from pathlib import Path

from page_writer import write_or_check

from caffejax.export.onnx.layers import OPERATORS

PAGE = Path(__file__).resolve().parents[1] / "docs" / "exporting_onnx.md"
START, END = "<!-- made by scripts/make_onnx_page.py -->\n", "<!-- end -->\n"


def table() -> str:
    """Return the table of all types that have operators of their own."""
    lines = ["| type | operators | taken apart where |", "|---|---|---|"]
    lines += [f"| {name} | {own.words} | {own.unless} |" for name, own in sorted(OPERATORS.items())]
    return "\n".join(lines) + "\n"


def page(before: str) -> str:
    """Return the page with the table as it is now."""
    head, _, rest = before.partition(START)
    _, _, tail = rest.partition(END)
    return f"{head}{START}{table()}{END}{tail}"


if __name__ == "__main__":
    sys.exit(write_or_check(lambda: {PAGE: page(PAGE.read_text())}, __doc__))
