"""Trees of JSON changed at any place."""

from __future__ import annotations

import copy
import json
from random import Random
from typing import Any

from .raw import damage

_VALUES: list[Any] = [
    *(None, True, False, 0, -1, 1, 2, 7, 2**31 - 1, 2**31, 2**32, 2**53 + 1, 2**63, 2**64, 10**40, 0.5, -0.0, 1e308),
    *(
        float("nan"),
        float("inf"),
        "",
        "x",
        "F32",
        "\ud800",
        "\x00",
        "a" * 5000,
        [],
        {},
        [[]],
        [0],
        [1, 2],
        {"a": 1},
        {"": {}},
    ),
]

_REPEATED = 1000  # places of what is repeated a thousand times: more take the fuzzer itself too long


def change_tree(rng: Random, tree: Any) -> Any:
    """Return a copy with a few places changed."""
    root = [copy.deepcopy(tree)]
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        holder, key = rng.choice(_places(root))
        kind = rng.random()
        if kind < 0.6:
            holder[key] = copy.deepcopy(rng.choice(_VALUES))
        elif kind < 0.7 and holder is not root:
            del holder[key]
        elif kind < 0.8:
            times = rng.choice((1, 2, 1000))
            holder[key] = [holder[key]] * (times if len(_places(holder[key])) < _REPEATED else min(times, 2))
        elif kind < 0.9 and isinstance(holder, dict):
            holder[rng.choice(["", "x", f"{key}2", str(key).upper(), "__metadata__"])] = holder[key]
        else:
            source, name = rng.choice(_places(root))
            holder[key] = copy.deepcopy(source[name])
    return root[0]


def change_json(rng: Random, content: bytes) -> bytes:
    """Change a JSON text: its tree, now and then its bytes."""
    kind = rng.random()
    if kind < 0.1:
        return damage(rng, content)
    if kind < 0.15:
        depth = rng.choice((10, 900, 100_000))
        return b"[" * depth + content + b"]" * rng.choice((depth, 0))
    return json.dumps(change_tree(rng, json.loads(content))).encode()


def _places(tree: Any) -> list[tuple[Any, Any]]:
    """Each holder and key of a tree."""
    if isinstance(tree, dict):
        keys: list[Any] = list(tree)
    elif isinstance(tree, list):
        keys = list(range(len(tree)))
    else:
        return []
    return [(tree, key) for key in keys] + [location for key in keys for location in _places(tree[key])]
