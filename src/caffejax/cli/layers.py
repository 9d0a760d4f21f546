"""Describe layer types: their purpose, restrictions, bottoms and tops, and the meaning of each setting."""

from __future__ import annotations

import argparse
import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from ..base.text_table import align_columns
from . import flags, net_flags

if TYPE_CHECKING:
    from ..core.layers import LayerType
    from ..tools.layer_pages.descriptions import Setting

HELP = "explain layer types and their settings"
EXAMPLE = "caffejax layers Pooling"
_WIDTH = 110


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the command's flags."""
    parser.add_argument(
        "type",
        nargs="*",
        metavar="TYPE",
        help="a layer type or a message such as FillerParameter (default: list all types)",
    )
    flags.add_json_flag(parser)
    net_flags.add_import_flag(parser)


def run(options: argparse.Namespace) -> None:
    """Print the descriptions."""
    from ..core.layers import layer_type, layer_types
    from ..tools.layer_pages import descriptions

    if options.json:
        flags.print_json(_as_json(options.type or list(layer_types())))
        return
    if not options.type:
        rows = [
            (t.name, t.docs.origin, descriptions.get_docstring(t).partition("\n")[0]) for t in layer_types().values()
        ]
        print("\n".join(align_columns(rows, 3)))
        return
    for name in options.type:
        if name in descriptions.SHARED_MESSAGES:
            print("\n".join([f"{name}:", *_describe_settings(descriptions.list_message_settings(name)), ""]))
        else:
            t = layer_type(name, with_variants=True)
            printed_settings: set[tuple[Setting, ...]] = set()
            for title, variant in (descriptions.list_variants(t) or {"": t}).items():
                print("\n".join(_describe_type(f"{t.name}: {title}" if title else t.name, variant, printed_settings)))


def _as_json(names: Iterable[str]) -> list[dict[str, Any]]:
    """Return the descriptions of layer types and of settings messages as JSON-compatible values."""
    from ..core.layers import layer_type
    from ..tools.layer_pages import descriptions

    values: list[dict[str, Any]] = []
    for name in names:
        if name in descriptions.SHARED_MESSAGES:
            values.append({"name": name, "settings": {name: [*map(asdict, descriptions.list_message_settings(name))]}})
            continue
        layer = layer_type(name, with_variants=True)
        for variant, t in (descriptions.list_variants(layer) or {"": layer}).items():
            settings = {
                param: [*map(asdict, descriptions.list_settings(t, param))]
                for param in descriptions.list_param_fields(t)
            }
            entry = {
                "name": layer.name,
                "variant": variant,
                "aliases": layer.signature.aliases,
                "from": t.docs.origin,
            }
            entry |= {"description": descriptions.get_docstring(t), "facts": descriptions.format_facts(t)}
            values.append({**entry, "restrictions": descriptions.list_restrictions(t), "settings": settings})
    return values


def _describe_type(title: str, t: LayerType, printed_settings: set[tuple[Setting, ...]]) -> Iterator[str]:
    """Yield lines that describe a layer type and its settings. Settings in `printed_settings` are only named."""
    from ..tools.layer_pages import descriptions

    yield f"{title} (from {t.docs.origin})" if t.docs.origin != "BVLC" else title
    if t.signature.aliases:
        yield f"Also called {', '.join(t.signature.aliases)}."
    docstring = descriptions.get_docstring(t) or "No description: the function that computes it has no docstring."
    yield from ("", docstring, "", descriptions.format_facts(t))
    restrictions = " ".join(descriptions.list_restrictions(t))
    if restrictions:
        yield from textwrap.wrap(f"Restrictions: {restrictions}", _WIDTH)
    for param in descriptions.list_param_fields(t):
        settings = tuple(descriptions.list_settings(t, param))
        if settings in printed_settings:
            yield from ("", f"{param}: as above.")
        else:
            yield from ("", f"{param}:", *_describe_settings(settings))
        printed_settings.add(settings)
    yield ""


def _describe_settings(settings: Iterable[Setting]) -> Iterator[str]:
    """Yield a line for each setting, its name and default, and a line for its meaning if it is described."""
    for s in settings:
        kind = f"{s.kind}, repeated" if s.repeated else s.kind
        yield f"  {s.name} ({kind}; default: {s.default})" if s.default else f"  {s.name} ({kind})"
        if s.meaning:
            yield f"      {s.meaning}"
