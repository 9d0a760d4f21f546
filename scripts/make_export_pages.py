"""Writes the lists of supported layer types in the pages on exporting, from the registries of the exports.

python scripts/make_export_pages.py            # writes the pages
python scripts/make_export_pages.py --check    # fails if one is out of date
"""

from __future__ import annotations

import sys
import textwrap
from pathlib import Path

from page_writer import replace_part, write_or_check

from caffejax.export.engines import ENGINES
from caffejax.export.flax.emit_context import FLAX
from caffejax.export.onnx.layer_converters import OPERATORS

DOCS = Path(__file__).resolve().parents[1] / "docs"


def make_onnx_table() -> str:
    """Return a Markdown table of the layer types with a conversion to ONNX operators."""
    lines = ["| type | operators | decomposed if |", "|---|---|---|"]
    lines += [f"| {name} | {operators} | {exceptions} |" for name, (operators, exceptions) in sorted(OPERATORS.items())]
    return "\n".join(lines) + "\n"


def make_engine_table() -> str:
    """Return a Markdown table of the engines of `--for`."""
    lines = ["| `--for` | opset | rows of detections | batch size | why |", "|---|---|---|---|---|"]
    for name, engine in ENGINES.items():
        rows, batch = ("padded" if engine.pad_rows else "as found"), ("fixed" if engine.fixed_batch else "any")
        lines.append(f"| `{name}` | {engine.opset} | {rows} | {batch} | {engine.note} |")
    return "\n".join(lines) + "\n"


def make_flax_type_text() -> str:
    """Return the names of the layer types that flax source supports, as wrapped text."""
    return textwrap.fill(f"{', '.join(sorted(FLAX.rules))}.", 120) + "\n"


def make_pages() -> dict[Path, str]:
    """Return the new text of both pages, by path."""
    parts = {"exporting_onnx.md": make_onnx_table(), "exporting_flax.md": make_flax_type_text()}
    name = "scripts/make_export_pages.py"
    pages = {DOCS / page: replace_part((DOCS / page).read_text(), name, content) for page, content in parts.items()}
    onnx_page = DOCS / "exporting_onnx.md"
    pages[onnx_page] = replace_part(pages[onnx_page], f"{name} engines", make_engine_table())
    return pages


if __name__ == "__main__":
    sys.exit(write_or_check(make_pages, __doc__))
