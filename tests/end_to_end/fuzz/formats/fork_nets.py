"""Nets with types and settings of forks, from the recorded cases: built in both phases."""

from __future__ import annotations

from pathlib import Path

from ..harness import Files, Harness
from .net import build, change_net

_FORKS = Path(__file__).parents[3] / "forks"


def _make_intact_sets() -> list[Files]:
    result = [sorted(folder.glob("*.prototxt"))[:2] for folder in sorted(_FORKS.glob("*/recorded/*"))]
    return [{"net.prototxt": path.read_bytes()} for paths in result for path in paths]


HARNESS = Harness(_make_intact_sets, change_net, build, is_text=True)
