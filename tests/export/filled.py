"""Numbers for a net's params and state, with which signals neither fade nor grow from layer to layer."""

import jax
import numpy as np

from caffejax import Net
from caffejax.net import Variables

POSITIVE = {("BatchNorm", 1), ("BatchNorm", 3), ("BN", 0), ("BN", 3), ("Normalize", 0), ("Scale", 0)}
SHIFTS = {("BatchNorm", 4), ("BN", 1), ("Scale", 1)}  # most numbers pass the ReLU: else rounding grows over depth
PARTS = {("BatchNorm", 2): 2.0}  # its mean and variance are sums over so many batches


def filled(net: Net, seed: int = 0) -> Variables:
    """Variables without zeros: weights that keep the scale through a ReLU, small biases, factors and variances by 1."""
    random = np.random.default_rng(seed)
    wanted = jax.eval_shape(net.init, jax.random.key(0))
    kinds = {layer.key: layer.type.name for layer in net.graph.layers}

    def array(kind: str, index: int, like: jax.ShapeDtypeStruct) -> np.ndarray:
        if (kind, index) in PARTS:
            return np.full(like.shape, PARTS[kind, index], like.dtype)
        if (kind, index) in POSITIVE:
            return random.uniform(0.5, 1.5, like.shape).astype(like.dtype) * (2 if kind == "BatchNorm" else 1)
        if (kind, index) in SHIFTS:
            return random.uniform(0, 1, like.shape).astype(like.dtype)
        fan_in = np.prod(like.shape[1:])
        scale = 0.1 if fan_in == 1 or not like.shape else np.sqrt(2 / fan_in)
        return (random.standard_normal(like.shape, np.float32) * np.float32(scale)).astype(like.dtype)

    def tree(of: dict[str, tuple[jax.ShapeDtypeStruct | None, ...]]) -> dict[str, tuple[np.ndarray | None, ...]]:
        return {
            key: tuple(None if like is None else array(kinds[key], i, like) for i, like in enumerate(arrays))
            for key, arrays in of.items()
        }

    return Variables(tree(wanted.params), tree(wanted.state))
