"""The result of checking an exported file as an HTML page: a table, and pictures of both results."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path

import numpy as np

from ..base.atomic_write import replace_file
from ..base.errors import CaffejaxError
from ..tools.prediction.results import draw_results, make_results
from .inference_model import InferenceModel
from .proof import TOLERANCE, Difference

Arrays = Mapping[str, np.ndarray]
_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 70em; margin: 2em auto; padding: 0 1em; color: #222; }
h1 { font-size: 1.5em; } table { border-collapse: collapse; } td, th { border: 1px solid #ccc; padding: .3em .8em; }
.wrong { color: #a11; } figure { display: inline-block; margin: .5em; } img { max-width: 32em; }
"""


def write_report(
    path: str,
    file: str,
    engine: str,
    differences: Sequence[Difference],
    model: InferenceModel,
    inputs: Arrays,
    outputs: Arrays,
    expected: Arrays,
) -> None:
    """Write the page.

    Args:
        path: the page.
        file: the exported file or folder.
        engine: the name and version of the engine that ran it.
        differences: the differences of the outputs.
        model: the net.
        inputs: the inputs of the file.
        outputs, expected: the outputs of the file and of the net.

    Raises:
        CaffejaxError: if the page cannot be written.
    """
    rows = "\n".join(_render_row(item) for item in differences)
    pictures = "\n".join(
        f"<figure><img src='data:image/png;base64,{base64.b64encode(png).decode()}' alt=''/>"
        f"<figcaption>{escape(title)}</figcaption></figure>"
        for title, png in _draw_pictures(model, inputs, {"the net": expected, engine: outputs}).items()
    )
    page = f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"/><title>{escape(file)}</title><style>{_STYLE}</style></head><body>
<h1>{escape(file)} in {escape(engine)}</h1>
<p>Differences from the net, as a share of the largest number of an output; {TOLERANCE:g} are allowed.</p>
<table><tr><th>output</th><th>shape</th><th>largest number</th><th>largest difference</th><th></th></tr>
{rows}
</table>
{pictures}
</body></html>
"""
    with replace_file(path) as stream:
        stream.write(page.encode())


def _render_row(item: Difference) -> str:
    style = "" if item.is_small else ' class="wrong"'
    cells = (item.output, "x".join(map(str, item.shape)), f"{item.largest:.4g}", f"{item.relative:.1e}", item.note)
    return f"<tr{style}>{''.join(f'<td>{escape(cell)}</td>' for cell in cells)}</tr>"


def _draw_pictures(model: InferenceModel, inputs: Arrays, outputs_by_title: Mapping[str, Arrays]) -> dict[str, bytes]:
    """Return a PNG for each title, with the detections or labels of the first image; none if the net has neither."""
    images = [x for x in inputs.values() if x.ndim == 4 and (x.shape[1] in (1, 3) or x.shape[3] in (1, 3))]
    if len(images) != 1:
        return {}
    image = images[0][0].astype(np.float32)
    pixels = image.transpose(1, 2, 0) if image.shape[0] in (1, 3) else image[..., ::-1]
    low, high = float(pixels.min()), float(pixels.max())
    picture = np.ascontiguousarray((pixels - low) * (255 / max(high - low, 1e-6))).astype(np.uint8)
    picture = picture[..., 0] if picture.shape[-1] == 1 else picture
    pictures = {}
    for title, outputs in outputs_by_title.items():
        sizes = [picture.shape[:2]] * len(images[0])
        try:
            results = make_results(model.net.graph, outputs, sizes, threshold=0.0)[0]
        except (CaffejaxError, KeyError, IndexError, ValueError):  # outputs of another shape cannot be drawn
            continue
        if results:
            pictures[title] = draw_results(picture, results, {}, Path("picture.png"))
    return pictures
