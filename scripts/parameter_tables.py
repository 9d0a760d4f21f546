"""Tables of settings for the pages of layers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from caffejax.core.layers import LayerType
from caffejax.tools.layer_pages.descriptions import SHARED_MESSAGES, Setting, list_message_settings, list_settings

_HEAD = ["| parameter | type | default | meaning |", "|---|---|---|---|"]


class Tables:
    """Tables of types' parameters; a type with those of an earlier one is told to have these."""

    def __init__(self) -> None:
        self._first_tables: dict[tuple[str, ...], tuple[str, str]] = {}

    def format_type_table(self, t: LayerType, param: str, anchor: str) -> list[str]:
        """Write the table of a message of a type's, forks' fields left out unless followed."""
        rows = tuple(_make_rows(list_settings(t, param)))
        if not rows:
            return [f"`{param}` has no settings that count here."]
        first_type, first_link = self._first_tables.setdefault(rows, (t.name, anchor))
        if first_type != t.name and len(rows) > 2:
            return [f"`{param}`: see [{first_type}]({first_link})."]
        return [f"`{param}`:", "", *_HEAD, *rows]

    def format_message_table(self, name: str) -> list[str]:
        """Write the table of a shared message."""
        return [*_HEAD, *_make_rows(list_message_settings(name))]


def _make_rows(settings: Iterable[Setting]) -> Iterator[str]:
    for s in settings:
        type_text = f"[{s.kind}](layers.md#{s.kind.lower()})" if s.kind in SHARED_MESSAGES else s.kind
        type_text += ", repeated" * s.repeated
        yield f"| {s.name} | {type_text} | {s.default} | {s.meaning.replace('|', chr(92) + '|').replace('<', '&lt;')} |"
