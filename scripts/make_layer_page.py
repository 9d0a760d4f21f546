"""Writes docs/layers.md, the page of layer types, from the registry and the schema.

python scripts/make_layer_page.py            # writes the page
python scripts/make_layer_page.py --check    # fails if the page is out of date
"""

from __future__ import annotations

import inspect
import sys
from pathlib import Path
from typing import Any

from page_writer import write_or_check

import caffejax.data  # noqa: F401  registers the data layers
from caffejax.layers import Fed, LayerType, OnHost, PerLayer, Reads, Traced, Variants, layer_types
from caffejax.layers.questions import ON_HOST, QUESTIONS
from caffejax.schema import caffe_pb2
from caffejax.schema.forks import fork_fields

PAGE = Path(__file__).resolve().parents[1] / "docs" / "layers.md"

INTRO = """# Layers

Made from the registry by `scripts/make_layer_page.py`; a test keeps it up to date.

**Gradient** says how a type's gradient is known to be right. *Three ways*: autodiff of forward, the hand-written
Backward and finite differences agree, which `caffejax gradcheck` shows for any net and the tests for every type.
*Two ways*: the layer runs on the host, where there is no autodiff; its Backward agrees with finite differences.
*Caffe's rule*: Caffe's formula is not the derivative, and is what is used, in autodiff too. *None*: Caffe has no
gradient either. *Its own*: the layer's, which `caffejax gradcheck` checks.
Where Caffe stops a gradient that a derivative would have, the type's section says so.

As any function in JAX, a layer can

QUESTIONS

Tests ask this of every type; what one cannot do is among its restrictions.

**Origin** says whose type it is: BVLC Caffe's, or that of a fork or project which defined it. Forks use some names for
different things; such a type has a row for each variant, and its section says how they are told apart.

"""


def page() -> str:
    """Write the whole page."""
    types = layer_types().values()
    lines = [
        INTRO.replace("QUESTIONS", "\n".join(f"- {text}" for text in QUESTIONS.values()))
        + "| type | origin | bottoms | tops | gradient | what it does | restrictions |",
        "|---|---|---|---|---|---|---|",
    ]
    for t in types:
        name = f"[{t.name}](#{t.name.lower()})"
        lines += [row(name, t)] if not variants(t) else [row(f"{name}: {v}", t) for v, t in variants(t).items()]
    for t in types:
        lines += ["", f"## {t.name}", ""]
        if t.signature.aliases:
            lines += [f"Also called {', '.join(t.signature.aliases)}.", ""]
        lines += section(t) if not isinstance(t.runs, Variants) else [t.runs.told_apart]
        for name, variant in variants(t).items():
            lines += ["", f"### {t.name}: {name}", "", *section(variant)]
    return "\n".join(lines) + "\n"


def variants(t: LayerType) -> dict[str, LayerType]:
    """Return the variants of a type by name; none of most."""
    return dict(t.runs.types) if isinstance(t.runs, Variants) else {}


def row(name: str, t: LayerType) -> str:
    """Make a type's row in the table of all."""
    counts = f"{count(t.signature.bottoms)} | {count(t.signature.tops)}"
    return f"| {name} | {t.facts.origin} | {counts} | {gradient(t)} | {summary(t)} | {restrictions(t)} |"


def section(t: LayerType) -> list[str]:
    """Write what is to say of a type besides."""
    lines = [description(t)]
    if t.gradient.not_derivative:
        lines += ["", f"Not the derivative: {t.gradient.not_derivative}"]
    if t.signature.param:
        lines += ["", f"`{t.signature.param}`:", "", "| parameter | type | default |", "|---|---|---|", *parameters(t)]
    return lines


def count(n: Any) -> str:
    """Format a number of blobs: `2`, `1 to 3`, `1 or more`, `as bottoms`."""
    if isinstance(n, str):
        return "as bottoms"
    if isinstance(n, int):
        return str(n)
    low, high = n
    return f"{low} or more" if high is None else f"{low} to {high}"


def gradient(t: LayerType) -> str:
    """Say how the gradient is known to be right."""
    rule = t.gradient.rule
    if rule is None:
        return "its own" if makes_its_own(t) else "none"
    if t.on_host:
        return "two ways"
    return "Caffe's rule" if t.gradient.preferred else "three ways"


def makes_its_own(t: LayerType) -> bool:
    """Whether each layer of a type makes its own gradient, as Python layers do."""
    return isinstance(t.runs, PerLayer) and t.gradient.rule is None and t.gradient.exists


def restrictions(t: LayerType) -> str:
    """Say what the type does not do, and which of JAX's transformations do not work with it."""
    on_host = f"No transformation but `jax.grad`: {ON_HOST}."
    own = t.facts.restrictions
    if t.on_host:
        return f"{own} {on_host}".strip()
    cannot = [f"Cannot {QUESTIONS[question]}: {reason}." for question, reason in t.cannot.items()]
    settled = [f"For a class with pycaffe's methods: {on_host[0].lower()}{on_host[1:]}"] if makes_its_own(t) else []
    return " ".join(filter(None, [own, *cannot, *settled]))


def description(t: LayerType) -> str:
    """Return the docstring of the function that defines the type."""
    match t.runs:
        case Traced(forward=function) | OnHost(forward=function):
            pass
        case Reads(open=function) | Fed(shapes=function) | PerLayer(make=function):
            pass
        case Variants():
            return t.runs.told_apart
    return inspect.getdoc(function) or ""


def summary(t: LayerType) -> str:
    """Return the first line of the docstring."""
    return description(t).splitlines()[0].replace("|", "\\|") if description(t) else ""


def parameters(t: LayerType) -> list[str]:
    """Make a table row for each of the type's own parameters, forks' left out unless the type follows them."""
    message = caffe_pb2.LayerParameter.DESCRIPTOR.fields_by_name[t.signature.param].message_type
    added = fork_fields().get(message.name, {})
    shown = [f for f in message.fields if f.name not in added or f.name in t.signature.fork_settings]
    return [f"| {f.name} | {kind(f)} | {default(f)} |" for f in shown]


def kind(field: Any) -> str:
    """Say the field's type in words."""
    if field.enum_type is not None:
        names = {v.name for v in field.enum_type.values if v.number < 100}
        name = ", ".join(v.name for v in field.enum_type.values if v.name in names)
    elif field.message_type is not None:
        name = field.message_type.name
    else:
        name = {1: "float", 2: "float", 3: "int", 5: "int", 8: "bool", 9: "string", 13: "int"}[field.type]
    return f"{name}, repeated" if field.is_repeated else name


def default(field: Any) -> str:
    """Format the schema's default; nothing where there is none."""
    if not field.has_default_value:
        return ""
    if field.enum_type is not None:
        return field.enum_type.values_by_number[field.default_value].name
    value = field.default_value
    return str(value).lower() if isinstance(value, bool) else f"{value:g}" if isinstance(value, float) else str(value)


if __name__ == "__main__":
    sys.exit(write_or_check(PAGE, page, __doc__))
