"""Mutations of any value of a JSON document."""

from __future__ import annotations

import copy
import json
from random import Random
from typing import Any

from .byte_mutations import damage

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

_MAX_REPEATED_PLACES = 1000  # places of what is repeated a thousand times: more take the fuzzer itself too long


def change_tree(rng: Random, tree: Any) -> Any:
    """Return a copy with a few places changed."""
    root = [copy.deepcopy(tree)]
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        container, key = rng.choice(_list_places(root))
        choice = rng.random()
        if choice < 0.6:
            container[key] = copy.deepcopy(rng.choice(_VALUES))
        elif choice < 0.7 and container is not root:
            del container[key]
        elif choice < 0.8:
            times = rng.choice((1, 2, 1000))
            container[key] = [container[key]] * (
                times if len(_list_places(container[key])) < _MAX_REPEATED_PLACES else min(times, 2)
            )
        elif choice < 0.9 and isinstance(container, dict):
            container[rng.choice(["", "x", f"{key}2", str(key).upper(), "__metadata__"])] = container[key]
        else:
            source, name = rng.choice(_list_places(root))
            container[key] = copy.deepcopy(source[name])
    return root[0]


def change_json(rng: Random, content: bytes) -> bytes:
    """Change a JSON text: its tree, now and then its bytes."""
    choice = rng.random()
    if choice < 0.1:
        return damage(rng, content)
    if choice < 0.15:
        depth = rng.choice((10, 900, 100_000))
        return b"[" * depth + content + b"]" * rng.choice((depth, 0))
    return json.dumps(change_tree(rng, json.loads(content))).encode()


def _list_places(tree: Any) -> list[tuple[Any, Any]]:
    """Each holder and key of a tree."""
    if isinstance(tree, dict):
        keys: list[Any] = list(tree)
    elif isinstance(tree, list):
        keys = list(range(len(tree)))
    else:
        return []
    return [(tree, key) for key in keys] + [place for key in keys for place in _list_places(tree[key])]
