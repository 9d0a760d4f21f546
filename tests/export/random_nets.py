"""Random small nets of the layers that export to flax source supports."""

from typing import Any

from hypothesis import strategies as st

from caffejax import CaffejaxError, Net
from export.flax_nets import LAYERS, input_layer, layer

SHAPES = ((2, 6, 4, 5), (2, 3, 7, 8), (3, 4, 6, 6), (1, 8, 5, 4), (2, 6), (2, 4, 6))
MULTI_BLOB_LAYERS = (  # with as many bottoms, or tops, as there are after the type
    ("Eltwise 2", ""),
    ("Eltwise 3", "eltwise_param { coeff: 1 coeff: -0.5 coeff: 2 }"),
    ("Eltwise 2", "eltwise_param { operation: PROD }"),
    ("Eltwise 2", "eltwise_param { operation: MAX }"),
    ("Concat 2", ""),
    ("Concat 3", "concat_param { axis: -1 }"),
    ("Scale 2", "scale_param { axis: 0 }"),
    ("Bias 2", "bias_param { axis: 0 }"),
    ("Crop 2", "crop_param { axis: 2 }"),
    ("Axpy 3", ""),
    ("Slice 1 2", ""),
    ("Slice 1 2", "slice_param { axis: 2 slice_point: 1 }"),
    ("Pooling 1 2", "pooling_param { kernel_size: 2 stride: 2 }"),
    ("Split 1 2", ""),
    ("InnerProduct 2", "inner_product_param { bias_term: false }"),
)


@st.composite
def draw_nets(draw: Any, max_layers: int = 8) -> tuple[str, tuple[str, ...]]:
    """Draw a net's text and the blobs that are wanted of it."""
    parts = [input_layer(*draw(st.sampled_from(SHAPES)), name=f"x{i}") for i in range(draw(st.sampled_from([1, 1, 2])))]
    blobs = [f"x{i}" for i in range(len(parts))]
    for number in range(draw(st.integers(2, max_layers))):
        layer_text, tops = _draw_layer(draw, f"b{number}", blobs)
        try:
            Net("\n".join([*parts, layer_text]), "TEST")
        except CaffejaxError:  # it does not take such blobs
            continue
        parts.append(layer_text)
        blobs = [*(name for name in blobs if name not in tops), *tops]
    computed = [name for name in blobs if not name.startswith("x")] or ["x0"]
    output_names = {computed[-1], *draw(st.lists(st.sampled_from(computed), max_size=2))}
    return "\n".join(parts), tuple(sorted(output_names))


def _draw_layer(draw: Any, name: str, blobs: list[str]) -> tuple[str, list[str]]:
    """A layer, often of the last blob, and its tops; sometimes it works in place."""

    def bottom() -> str:
        return blobs[-1] if draw(st.booleans()) else str(draw(st.sampled_from(blobs)))

    if draw(st.integers(0, 2)):
        settings = LAYERS[draw(st.sampled_from(sorted(LAYERS)))][1]
        layer_type, _, settings = settings.removeprefix('type: "').partition('"')
        bottom_name = bottom()
        tops = [bottom_name if draw(st.integers(0, 3)) == 0 else name]
        return layer(layer_type, name, bottom_name, tops[0], settings), tops
    counts, settings = draw(st.sampled_from(MULTI_BLOB_LAYERS))
    layer_type, bottoms, *top_counts = counts.split()
    tops = [name, f"{name}s"][: int(top_counts[0]) if top_counts else 1]
    return layer(layer_type, name, " ".join(bottom() for _ in range(int(bottoms))), " ".join(tops), settings), tops
