"""Writes what the pages on exporting say of layer types, from the exports' registries.

python scripts/make_export_pages.py            # writes the pages
python scripts/make_export_pages.py --check    # fails if one is out of date
"""

from __future__ import annotations

import sys
import textwrap
from pathlib import Path

from page_writer import replace_part, write_or_check

from caffejax.export.flax.emit_context import supported_types
from caffejax.export.onnx.layer_operators import LAYER_CONVERSIONS

DOCS = Path(__file__).resolve().parents[1] / "docs"


def make_onnx_table() -> str:
    """Return the table of all types that have operators of ONNX of their own."""
    lines = ["| type | operators | taken apart where |", "|---|---|---|"]
    lines += [
        f"| {name} | {operator.operator_names} | {operator.exceptions} |"
        for name, operator in sorted(LAYER_CONVERSIONS.items())
    ]
    return "\n".join(lines) + "\n"


def list_flax_types() -> str:
    """Return the names of all types that flax source can be written of."""
    return textwrap.fill(f"{', '.join(sorted(supported_types()))}.", 120) + "\n"


def make_pages() -> dict[Path, str]:
    """Return both pages, with the parts about layer types as they are now."""
    parts = {"exporting_onnx.md": make_onnx_table(), "exporting_flax.md": list_flax_types()}
    name = "scripts/make_export_pages.py"
    return {DOCS / page: replace_part((DOCS / page).read_text(), name, content) for page, content in parts.items()}


if __name__ == "__main__":
    sys.exit(write_or_check(make_pages, __doc__))
