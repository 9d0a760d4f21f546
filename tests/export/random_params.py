"""Random params and state that neither amplify nor attenuate signals from layer to layer."""

from typing import Any

import numpy as np

from caffejax import Net
from caffejax.base.variables import Variables

SCALES = {  # positive factors and variances
    *(("BatchNorm", name) for name in ("variance", "weight")),
    *(("BN", name) for name in ("weight", "variance")),
    ("Normalize", "scale"),
    ("Scale", "weight"),
}
SHIFTS = {("BatchNorm", "bias"), ("BN", "bias"), ("Scale", "bias")}  # positive, so that few numbers are cut by a ReLU
CONSTANTS = {("BatchNorm", "scale_factor"): 2.0}  # the scale of the stored mean and variance


def draw_variables(net: Net, seed: int = 0) -> Variables:
    """Return variables without zeros: He-scaled weights, small biases, positive factors and variances near 1."""
    random = np.random.default_rng(seed)

    def draw_array(param: Any) -> np.ndarray:
        shape, blob = param.spec.shape, (net.graph.layer(param.slot.layer).type.name, param.slot.name)
        if blob in CONSTANTS:
            return np.full(shape, CONSTANTS[blob], np.float32)
        if blob in SCALES:
            return random.uniform(0.5, 1.5, shape).astype(np.float32) * (2 if blob[0] == "BatchNorm" else 1)
        if blob in SHIFTS:
            return random.uniform(0, 1, shape).astype(np.float32)
        fan_in = np.prod(shape[1:])
        scale = 0.1 if fan_in == 1 or not shape else np.sqrt(2 / fan_in)
        return random.standard_normal(shape, np.float32) * np.float32(scale)

    order = sorted(net.graph.variables, key=lambda p: (not p.spec.learnable, p.slot.layer, p.index))
    arrays = {param.slot: draw_array(param) for param in order}
    return Variables(*net.graph.map_variables(lambda param: arrays[param.slot]))
