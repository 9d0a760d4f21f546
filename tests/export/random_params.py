"""Random params and state that neither amplify nor attenuate signals from layer to layer."""

import jax
import numpy as np

from caffejax import Net
from caffejax.base.variables import Variables

SCALES = {("BatchNorm", 1), ("BatchNorm", 3), ("BN", 0), ("BN", 3), ("Normalize", 0), ("Scale", 0)}
SHIFTS = {("BatchNorm", 4), ("BN", 1), ("Scale", 1)}  # positive, so that few numbers are cut by a ReLU
CONSTANTS = {("BatchNorm", 2): 2.0}  # the scale of the stored mean and variance


def draw_variables(net: Net, seed: int = 0) -> Variables:
    """Return variables without zeros: He-scaled weights, small biases, positive factors and variances near 1."""
    random = np.random.default_rng(seed)
    shapes = jax.eval_shape(net.init, jax.random.key(0))
    types = {layer.key: layer.type.name for layer in net.graph.layers}

    def draw_array(layer_type: str, index: int, like: jax.ShapeDtypeStruct) -> np.ndarray:
        if (layer_type, index) in CONSTANTS:
            return np.full(like.shape, CONSTANTS[layer_type, index], like.dtype)
        if (layer_type, index) in SCALES:
            factor = 2 if layer_type == "BatchNorm" else 1
            return random.uniform(0.5, 1.5, like.shape).astype(like.dtype) * factor
        if (layer_type, index) in SHIFTS:
            return random.uniform(0, 1, like.shape).astype(like.dtype)
        fan_in = np.prod(like.shape[1:])
        scale = 0.1 if fan_in == 1 or not like.shape else np.sqrt(2 / fan_in)
        return (random.standard_normal(like.shape, np.float32) * np.float32(scale)).astype(like.dtype)

    def draw_tree(shapes_of: dict[str, dict[int, jax.ShapeDtypeStruct]]) -> dict[str, dict[int, np.ndarray]]:
        return {
            key: {i: draw_array(types[key], i, like) for i, like in sorted(arrays.items())}
            for key, arrays in shapes_of.items()
        }

    return Variables(draw_tree(shapes.params), draw_tree(shapes.state))
