"""Writes what the pages on exporting say of layer types, from the exports' registries.

python scripts/make_export_pages.py            # writes the pages
python scripts/make_export_pages.py --check    # fails if one is out of date
"""

from __future__ import annotations

import sys
import textwrap
from pathlib import Path

from page_writer import write_or_check

from caffejax.export.flax.emit_context import known_types
from caffejax.export.onnx.layer_operators import OPERATORS

DOCS = Path(__file__).resolve().parents[1] / "docs"
START, END = "<!-- made by scripts/make_export_pages.py -->\n", "<!-- end -->\n"


def onnx_table() -> str:
    """Return the table of all types that have operators of ONNX of their own."""
    lines = ["| type | operators | taken apart where |", "|---|---|---|"]
    lines += [f"| {name} | {own.words} | {own.unless} |" for name, own in sorted(OPERATORS.items())]
    return "\n".join(lines) + "\n"


def flax_types() -> str:
    """Return the names of all types that flax source can be written of."""
    return textwrap.fill(f"{', '.join(sorted(known_types()))}.", 120) + "\n"


def page(name: str, made: str) -> tuple[Path, str]:
    """Return a page with its made part as it is now."""
    path = DOCS / name
    head, _, rest = path.read_text().partition(START)
    _, _, tail = rest.partition(END)
    return path, f"{head}{START}{made}{END}{tail}"


def pages() -> dict[Path, str]:
    """Return both pages."""
    return dict([page("exporting_onnx.md", onnx_table()), page("exporting_flax.md", flax_types())])


if __name__ == "__main__":
    sys.exit(write_or_check(pages, __doc__))
