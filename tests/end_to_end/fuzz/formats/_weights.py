"""A small net, arrays of its weights, and the comparison of weights that were read."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

from caffejax import Net, Variables, load_weights

NET = """
name: "small"
layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 1 dim: 2 dim: 5 dim: 5 } } }
layer { name: "conv" type: "Convolution" bottom: "data" top: "conv" convolution_param { num_output: 3 kernel_size: 3 } }
layer { name: "bn" type: "BatchNorm" bottom: "conv" top: "conv" }
layer { name: "ip" type: "InnerProduct" bottom: "conv" top: "ip" inner_product_param { num_output: 4 } }
"""

BLOBS = {
    "conv": [np.arange(54, dtype=np.float32).reshape(3, 2, 3, 3), np.ones(3, np.float32)],
    "bn": [np.zeros(3, np.float32), np.ones(3, np.float32), np.ones(1, np.float32)],
    "ip": [np.linspace(-1, 1, 108, dtype=np.float32).reshape(4, 27), np.zeros(4, np.float32)],
}


@functools.cache
def build_net() -> tuple[Net, Variables]:
    """The net, built once."""
    net = Net(NET)
    return net, net.init(jax.random.key(0))


def load_blobs(path: Path) -> dict[str, list[np.ndarray]]:
    """The net's blobs once a file is loaded."""
    net, variables = build_net()
    result = load_weights(path, net.graph, variables)
    return {name: [np.asarray(b) for b in blobs if b is not None] for tree in result for name, blobs in tree.items()}


def are_equal_arrays(first: Any, second: Any) -> bool:
    """Return whether two arrays are equal in shape, dtype and all bits."""
    return first is second or (
        first.shape == second.shape
        and first.dtype == second.dtype
        and bool(np.array_equal(first, second, equal_nan=True))
    )


def same_weights(first: Mapping[str, Any], second: Mapping[str, Any]) -> bool:
    """Return whether the same layers have equal blobs."""
    return first.keys() == second.keys() and all(
        len(first[name]) == len(second[name]) and all(map(are_equal_arrays, first[name], second[name]))
        for name in first
    )
