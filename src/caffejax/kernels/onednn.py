"""Convolutions and matrix products by oneDNN, which jaxlib's CPU compiler has in it.

XLA rewrites them to custom calls of oneDNN behind a flag that has no effect in jaxlib as it is built; what
runs such calls is there all the same, so they are made here. They are no promise of jaxlib's makers: only the versions
in which they were tried get them, others keep XLA's own convolution.
"""

from __future__ import annotations

import functools
import json
import platform
from collections.abc import Sequence
from typing import Any

import jax
import jaxlib.version
import numpy as np

from .geometry import Geometry

_TRIED = {"0.10.0", "0.10.1", "0.10.2", "0.11.0", "0.11.1", "0.11.2", "0.12.0", "0.12.0.1"}


@functools.cache
def available() -> bool:
    """Whether what is compiled runs on a processor and a jaxlib that have it."""
    machine = platform.system() == "Linux" and platform.machine() == "x86_64"
    return machine and jaxlib.version.__version__ in _TRIED and jax.default_backend() == "cpu"


def suits(*arrays: jax.Array) -> bool:
    """Whether oneDNN takes arrays like these."""
    return available() and all(a.dtype == np.float32 and a.size for a in arrays)


def suits_convolution(x: jax.Array, weight: jax.Array, g: Geometry) -> bool:
    """Whether oneDNN takes the convolution of arrays like these, in Caffe's order."""
    if not suits(x, weight) or not 1 <= len(g.stride) <= 3 or min(map(min, g.padding)) < 0:
        return False
    # a single column of windows on a single channel comes out wrong, with some strides
    return not (x.shape[1] == g.groups == 1 == g.output(x.shape[2:], weight.shape[2:])[-1])


def convolution(
    x: jax.Array,
    weight: jax.Array,
    g: Geometry,
    bias: jax.Array | None = None,
    *,
    relu: bool = False,
    transposed: bool = False,
) -> jax.Array:
    """(batch, *space, inputs) to (batch, *output space, outputs), plus the bias (outputs,), negatives to 0 if `relu`.

    The weight is in Caffe's order: (outputs, inputs / groups, *kernel), or if `transposed`, and there are no groups,
    (inputs, outputs, *kernel). There is no derivative.
    """
    n = len(g.stride)
    axes = list(range(1, n + 1))
    data = {"data": {"batch_dim": 0, "feature_dim": n + 1, "spatial_dims": axes}}
    outputs, inputs = (1, 0) if transposed else (0, 1)
    config = {
        "dims": n + 2,
        "feature_groups": g.groups,
        "input": data,
        "kernel": {
            "filter": {
                "output_feature_dim": outputs,
                "input_feature_dim": inputs,
                "spatial_dims": list(range(2, n + 2)),
            }
        },
        "output": data,
        "window": {
            "pad_left": [low for low, _ in g.padding],
            "pad_right": [high for _, high in g.padding],
            "strides": list(g.stride),
            "window_dilations": list(g.dilation),
        },
        "fusions": {"ops": ["BIAS"] * (bias is not None) + ["RELU"] * relu},
    }
    shape = (x.shape[0], *g.output(x.shape[1:-1], weight.shape[2:]), weight.shape[outputs])
    arrays = [x, weight] if bias is None else [x, weight, bias]
    return _call("__onednn$convolution", {"onednn_conv_config": config}, shape, arrays)


def matmul(a: jax.Array, b: jax.Array, *, transpose_a: bool = False, transpose_b: bool = False) -> jax.Array:
    """The product of two matrices, each transposed first if told so. There is no derivative."""
    config = {"transpose_a": transpose_a, "transpose_b": transpose_b}
    shape = (a.shape[1 if transpose_a else 0], b.shape[0 if transpose_b else 1])
    return _call("__onednn$matmul", {"onednn_matmul_config": config}, shape, [a, b])


def _call(name: str, config: Any, shape: tuple[int, ...], arrays: Sequence[jax.Array]) -> jax.Array:
    call = jax.ffi.ffi_call(
        name,
        jax.ShapeDtypeStruct(shape, arrays[0].dtype),
        vmap_method="sequential",
        custom_call_api_version=1,
        legacy_backend_config=json.dumps(config),
    )
    return call(*arrays)
