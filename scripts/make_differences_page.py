"""Write docs/differences.md from the cases in tests/end_to_end/differences, which it runs, and from the registry.

--check writes nothing, and exits with 1 if the page is out of date.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from page_writer import write_or_check

from caffejax.core import data  # noqa: F401  registers the data layers
from caffejax.core.layers import LayerType, Variants, layer_types

REPOSITORY = Path(__file__).parents[1]
PAGE = REPOSITORY / "docs" / "differences.md"
sys.path.insert(0, str(REPOSITORY / "tests" / "end_to_end" / "differences"))

from all_differences import SECTIONS  # noqa: E402  it is stored beside the tests
from difference import Comparison, Difference  # noqa: E402

INTRO = """# Differences from Caffe

Where do results differ from Caffe's on purpose, and why? Everywhere else they are Caffe's but for the last digits: sums
are taken in another order. For a net of yours

    caffejax compare caffe.npz train_val.prototxt

prints how far each array is from a dump that Caffe wrote, and the first layer that departs ([how](comparing.md)).
Where Caffe's own gradient is not the derivative, and is followed all the same, [layers.md](layers.md) says so. By
Caffe its code for the CPU is meant. `scripts/make_differences_page.py` makes this page by running every case below; a
difference that vanished or changed fails a test.
"""

TYPES = """## Layer types

What types do otherwise than Caffe or the fork that defined them, or do not do at all. What is refused is an error that
names the layer and the setting. The list is the registry's (`LayerDocs.restrictions`).

| type | origin | otherwise, or not at all |
|---|---|---|""".splitlines()


def make_page() -> str:
    """Write the whole page."""
    lines = [INTRO]
    for title, (text, differences) in SECTIONS.items():
        lines += [f"## {title}", "", *wrap_paragraph(text), ""]
        for difference in differences:
            lines += [*format_difference(difference), ""]
    lines += TYPES
    lines += [
        f"| {name} | {t.docs.origin} | {t.docs.restrictions} |" for name, t in list_types() if t.docs.restrictions
    ]
    return "\n".join(lines) + "\n"


def format_difference(difference: Difference) -> Iterator[str]:
    """Write what is to say of a difference, with what its case shows."""
    yield from (f"### {difference.title}", "", *wrap_paragraph(difference.text), "")
    if difference.net.endswith(".prototxt"):
        yield from (f"The net is `{difference.net}`.", "")
    else:
        yield from ("```", *difference.net.replace("} layer {", "}\nlayer {").splitlines(), "```", "")
    yield from ("| | Caffe | caffejax |", "|---|---|---|")
    yield from (format_row(comparison) for comparison in difference.run(difference.net))
    yield from ("", *wrap_paragraph(f"Where Caffe's is from: {difference.source}."))


def format_row(result: Comparison) -> str:
    """Write what a case shows as a row of a table."""
    return f"| {result.what} | {format_number(result.caffe)} | {format_number(result.here)} |"


def format_number(value: Any) -> str:
    """Write numbers with four digits, which all machines agree on; words as they are."""
    if isinstance(value, str):
        return value
    text = [f"{v:.4g}" if v else "0" for v in np.ravel(np.asarray(value, np.float64))]
    return text[0] if np.ndim(value) == 0 else f"[{', '.join(text)}]"


def list_types() -> Iterator[tuple[str, LayerType]]:
    """List all types, and the variants of those that have some."""
    for t in layer_types().values():
        variants = dict(t.implementation.types) if isinstance(t.implementation, Variants) else {"": t}
        yield from ((f"{t.name}{name and ': '}{name}", variant) for name, variant in variants.items())


def wrap_paragraph(text: str) -> list[str]:
    """Break a paragraph at 120 characters."""
    return re.findall(r"\S.{0,118}\S?(?=\s|$)", text)


if __name__ == "__main__":
    sys.exit(write_or_check(lambda: {PAGE: make_page()}, __doc__))
