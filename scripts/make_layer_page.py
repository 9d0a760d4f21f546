"""Writes docs/layers.md, layers_caffe.md and layers_forks.md, from the registry, the schema and the tests' cases.

python scripts/make_layer_page.py            # writes the pages
python scripts/make_layer_page.py --check    # fails if one is out of date
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from layer_examples import Examples
from page_writer import write_or_check
from parameter_tables import Tables

from caffejax.core.layers import LayerType, Variants, layer_types
from caffejax.core.layers.registry import find_module
from caffejax.core.layers.types import TRANSFORMS
from caffejax.tools.layer_pages.descriptions import (
    SHARED_MESSAGES,
    format_facts,
    get_docstring,
    list_param_fields,
    list_restrictions,
    list_variants,
)

DOCS = Path(__file__).resolve().parents[1] / "docs"
ALL, CAFFE, FORKS = "layers.md", "layers_caffe.md", "layers_forks.md"

FAMILIES = {
    **dict.fromkeys(("data", "inputs", "pose_data", "segmentation_data", "video_data"), "data"),
    **dict.fromkeys(("neuron", "activations", "dropout"), "activation"),
    **dict.fromkeys(("convolution", "dense_block", "im2col", "inner_product"), "convolution, product"),
    "pooling": "pooling",
    **dict.fromkeys(("batch_norm", "l2_normalize", "lrn"), "normalization"),
    **dict.fromkeys(("affine", "axpy", "channel_scale", "eltwise"), "arithmetic"),
    **dict.fromkeys(("shape_ops", "permute", "indexing", "pass_through"), "shape, selection"),
    **dict.fromkeys(
        ("softmax", "spatial_softmax", "cross_entropy", "distance_losses", "smooth_l1", "accuracy"), "loss, metric"
    ),
    **dict.fromkeys(("recurrent", "sequences"), "sequence"),
    **dict.fromkeys(("detection", "detectnet", "mscnn", "rcnn", "yolo"), "detection"),
    "segmentation": "segmentation",
    "metric_learning": "metric learning",
    "flow": "optical flow",
    "c3d": "video",
    "python": "your own",
}

INTRO = """# All layer types

Which layers can a prototxt have, and what does each setting mean? This table lists the types; a type's name leads to
its section, with an example, its settings and what it does not do. In a terminal

    caffejax layers Pooling

prints the same, without a browser; without a name it lists all types. The types of BVLC Caffe are on
[one page](layers_caffe.md), the types of forks on [another](layers_forks.md), and settings that types share
[at the end of this page](#shared-settings). `scripts/make_layer_page.py` makes these pages from the registry.

**Origin** names the project that defined the type: BVLC Caffe, a fork, or another project. Forks use some names for
different layers; such a type has a row for each variant, and its section says how a variant is chosen.

"""

GRADIENTS = """
## Gradients and transformations

A type's section says how its gradient is known to be right.

| gradient | meaning |
|---|---|
| three ways | autodiff of forward, its Backward and finite differences agree ([`caffejax gradcheck`](gradients.md)) |
| two ways | the layer runs on the host, where there is no autodiff; its Backward agrees with finite differences |
| Caffe's rule | Caffe's formula is not the derivative, and autodiff uses it too |
| none | Caffe has no gradient either |
| its own | the gradient of the user's layer, which `caffejax gradcheck` checks |

Where Caffe stops a gradient that a derivative would have, the section says so. As any function in JAX, a layer can

TRANSFORMS

Tests check this for every type. A type's section names the transformations that it lacks, and its other restrictions.
"""

SECTIONS = """# TITLE

What each layer type of WHOSE does, and what its settings mean. In a terminal `caffejax layers TYPE` prints the same;
[the table of all types](layers.md) has a line for each. The examples were built when this page was made: above each are
the shapes of bottoms, tops and params. Below it is the layer as [a function](jax.md#one-layer-as-a-function) of arrays,
whose `init(key, *shapes)` returns params and state. Messages that types share, such as FillerParameter, are
[at the end of the table's page](layers.md#shared-settings).

CONTENTS
"""

SETTINGS = """
## Shared settings

Settings that every layer may have, and messages that several types share. `loss_param` is for losses,
`transform_param` for layers that read images, see [data.md](data.md#transform_param). Settings of forks are listed if a
layer supports them.
"""


def make_pages() -> dict[Path, str]:
    """Write all pages."""
    examples, tables = Examples(), Tables()
    return {
        DOCS / ALL: make_overview(tables),
        DOCS / CAFFE: make_sections(CAFFE, "Layers of Caffe", "BVLC Caffe", examples, tables),
        DOCS / FORKS: make_sections(FORKS, "Layers of forks", "forks of Caffe", examples, tables),
    }


def make_sections(page: str, title: str, whose: str, examples: Examples, tables: Tables) -> str:
    """Write a page's sections, by family and in alphabetical order, below links to them."""
    contents, lines = [], []
    for name in dict.fromkeys(FAMILIES.values()):
        types = [t for t in layer_types().values() if find_page(t) == page and find_family(t) == name]
        if types:
            heading = f"{name.capitalize()} layers".replace(",", " and")
            links = ", ".join(f"[{t.name}](#{t.name.lower()})" for t in types)
            contents.append(f"- [{heading}](#{heading.lower().replace(' ', '-')}): {links}")
            lines += ["", f"## {heading}"]
        for t in types:
            lines += ["", f"### {t.name}", "", *make_type_section(t, examples, tables)]
    head = SECTIONS.replace("TITLE", title).replace("WHOSE", whose).replace("CONTENTS", "\n".join(contents))
    return head + "\n".join(lines) + "\n"


def find_page(t: LayerType) -> str:
    """Return the page of a type: of Caffe's, with all variants that forks added to one, or of forks'."""
    return CAFFE if "BVLC" in [v.docs.origin for v in (list_variants(t) or {"": t}).values()] else FORKS


def section_link(name: str) -> str:
    """Return where the section of a type is, of its name."""
    return f"{find_page(layer_types()[name])}#{name.lower()}"


def make_overview(tables: Tables) -> str:
    """Write the table of all types, and the settings that they share."""
    lines = [
        INTRO + "| type | family | what it does | origin |",
        "|---|---|---|---|",
    ]
    for t in layer_types().values():
        name = f"[{t.name}]({section_link(t.name)})"
        lines += (
            [make_row(name, t)]
            if not list_variants(t)
            else [make_row(f"{name}: {v}", t) for v, t in list_variants(t).items()]
        )
    transforms = "\n".join(f"- {text}" for text in TRANSFORMS.values())
    lines += [GRADIENTS.replace("TRANSFORMS", transforms), SETTINGS]
    for message in SHARED_MESSAGES:
        lines += [f"### {message}", "", *tables.format_message_table(message), ""]
    return "\n".join(lines)


def make_type_section(t: LayerType, examples: Examples, tables: Tables) -> list[str]:
    """Write a type's section, with one for each of its variants."""
    lines = [f"Also called {', '.join(t.signature.aliases)}.", ""] if t.signature.aliases else []
    if not isinstance(t.implementation, Variants):
        return lines + make_section(t, examples, tables)
    lines.append(t.implementation.selection_doc)
    for name, variant in list_variants(t).items():
        lines += ["", f"#### {t.name}: {name}", "", *make_section(variant, examples, tables)]
    return lines


def make_row(name: str, t: LayerType) -> str:
    """Make a type's row in the table of all."""
    return f"| {name} | {find_family(t)} | {summarize(t)} | {t.docs.origin.replace('/', '/<wbr>')} |"


def find_family(t: LayerType) -> str:
    """Return the family of a type, by the file that defines it, or else by its folder."""
    parts = (find_module(t.name) or "").split(".")
    return next(FAMILIES[part] for part in reversed(parts) if part in FAMILIES)


def make_section(t: LayerType, examples: Examples, tables: Tables) -> list[str]:
    """Write what is to say of a type besides, with an example and its parameters."""
    lines = [get_docstring(t), "", format_facts(t)]
    if t.gradient.deviation:
        lines += ["", f"Not the derivative: {t.gradient.deviation}"]
    if limits := list_restrictions(t):
        lines += ["", f"Restrictions: {' '.join(limits)}"]
    lines += ["", *examples[t]]
    for param in list_param_fields(t):
        lines += ["", *tables.format_type_table(t, param, section_link(t.name))]
    return lines


def summarize(t: LayerType) -> str:
    """Return the first line of the docstring, without the name of Caffe's file, which would not fit a column."""
    return re.sub(r" \(\S+\.cpp\)", "", get_docstring(t).partition("\n")[0]).replace("|", "\\|")


if __name__ == "__main__":
    sys.exit(write_or_check(make_pages, __doc__))
