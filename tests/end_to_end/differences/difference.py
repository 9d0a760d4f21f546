"""Declared differences from Caffe, and functions that run their cases."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from caffejax.core.program.net import Net

GOLDEN = Path(__file__).parents[2] / "golden"
FORKS = GOLDEN.parent / "forks"


class Comparison(NamedTuple):
    """One difference: its description, Caffe's result, and caffejax's result.

    Results that are not arrays, such as errors, are described in words.
    """

    what: str
    caffe: Any
    here: Any


@dataclass(frozen=True)
class Difference:
    """A place where results differ from Caffe's on purpose.

    Attributes:
        title: the place.
        text: the behaviour of Caffe and of caffejax, and the reason.
        source: the source of Caffe's numbers: a recording, or the line of its code that computes them.
        net: the layer, or the net, that shows it.
        run: runs the case.
    """

    title: str
    text: str
    source: str
    net: str
    run: Callable[[str], list[Comparison]]


def compute_top_and_diffs(net: str, bottoms: dict[str, Any], dy: Any, top: str = "y") -> tuple[Any, dict[str, Any]]:
    """Run layers on bottoms; return the top, and the diffs of the bottoms for this diff of the top."""
    inputs = "".join(
        f'layer {{ name: "{name}" type: "Input" top: "{name}" input_param {{ shape {{ '
        f"{' '.join(f'dim: {n}' for n in np.shape(x))} }} }} }}\n"
        for name, x in bottoms.items()
    )
    model = Net(f"force_backward: true\n{inputs}{net}", "TRAIN")
    params, state = model.init(jax.random.key(0))

    def compute_top(arrays: Any) -> Any:
        return model.apply(params, state, arrays, key=jax.random.key(0), blobs=(top,))[0][top]

    top_value, vjp = jax.vjp(compute_top, {name: jnp.asarray(x, jnp.float32) for name, x in bottoms.items()})
    (diffs,) = vjp(jnp.asarray(dy, top_value.dtype))
    return np.asarray(top_value), jax.tree.map(np.asarray, diffs)
