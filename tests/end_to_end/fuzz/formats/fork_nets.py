"""Nets with types and settings of forks, from the recorded cases: built in both phases."""

from __future__ import annotations

from pathlib import Path

from ..harness import Files, Harness
from .net import build, change_net

_GOLDEN = Path(__file__).parents[3] / "forks" / "golden"


def _make_intact_sets() -> list[Files]:
    folders = [folder for name in ("fork_layers", "fork_layers_more") for folder in sorted((_GOLDEN / name).iterdir())]
    result = [sorted(folder.glob("*.prototxt"))[:2] for folder in folders if folder.is_dir()]
    return [{"net.prototxt": path.read_bytes()} for paths in result for path in paths]


HARNESS = Harness(_make_intact_sets, change_net, build, is_text=True)
