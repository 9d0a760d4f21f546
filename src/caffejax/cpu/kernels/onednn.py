"""Convolutions, products and maximum pooling by oneDNN on CPUs, as foreign functions of XLA that onednn.cc defines.

The foreign functions are compiled when caffejax is built. oneDNN comes from the package onednn-cpu-gomp. If either is
missing, XLA's implementations are used.
"""

from __future__ import annotations

import ctypes
import functools
import importlib.metadata
import importlib.util
import math
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from ...base.glog import log
from ...core.ops.custom_gradient import NeededDiffs
from ...core.ops.window import Window

PACKAGE = "onednn-cpu-gomp"
_INSTRUCTION_SETS = {"bfloat16": (0xE7,), "int8": (0x67, 0x0F)}  # dnnl_cpu_isa_t: avx512_core_bf16; _vnni, avx2_vnni
_FUNCTIONS = (
    "convolution",
    "input_diff",
    "weight_diff",
    "convolution_diffs",
    "matmul",
    "matmul_diffs",
    "max_pool",
    "max_pool_diff",
    "momentum_update",
    "row_sums",
    "channel_moments",
    "normalization_sums",
    "normalize_response",
    "normalize_response_diff",
    "rectangle_maxima",
    "rectangle_places",
)


def is_available() -> bool:
    """Return whether oneDNN can be called."""
    return unavailable_reason() is None


@functools.cache
def unavailable_reason() -> str | None:
    """Load oneDNN on the first call, and return the reason why it cannot be called, or None if it can."""
    spec = importlib.util.find_spec(f"{__package__}._onednn")
    if spec is None or spec.origin is None:
        return "this installation of caffejax has no compiled kernels; the wheel for Linux on x86-64 contains them"
    try:
        library = next(f for f in importlib.metadata.files(PACKAGE) or () if f.name == "libdnnl.so.3")
        ctypes.CDLL(str(library.locate()))  # the dynamic loader then finds oneDNN by its name
        functions = ctypes.CDLL(spec.origin)
        for name in _FUNCTIONS:
            capsule = jax.ffi.pycapsule(getattr(functions, f"caffejax_{name}"))
            jax.ffi.register_ffi_target(f"caffejax_{name}", capsule, platform="cpu")
    except (importlib.metadata.PackageNotFoundError, StopIteration):
        return f"the package {PACKAGE} is not installed"
    except Exception as error:  # from the dynamic loader, or from a jaxlib with a different interface
        return f"oneDNN cannot be loaded: {error}"
    return None


def has_instructions(number_type: str) -> bool:
    """Return whether oneDNN is available and this processor can multiply numbers of type "bfloat16" or "int8".

    int8 needs AVX512-VNNI or AVX-VNNI, bfloat16 needs AVX512-BF16. `ONEDNN_MAX_CPU_ISA` in the environment limits both.
    """
    if not is_available():
        return False
    available_sets = int(ctypes.CDLL("libdnnl.so.3").dnnl_get_effective_cpu_isa())
    return any(available_sets & required_sets == required_sets for required_sets in _INSTRUCTION_SETS[number_type])


@functools.cache
def _is_callable() -> bool:
    """Return whether oneDNN can be called; if not, log the reason once."""
    if reason := unavailable_reason():
        log.info("Convolutions and matrix products are computed by XLA, which is slower: %s", reason)
    return reason is None


def supports(*arrays: jax.Array) -> bool:
    """Return whether oneDNN is available and all arrays are float32 and not empty."""
    return _is_callable() and all(a.dtype == np.float32 and a.size for a in arrays)


def supports_convolution(x: jax.Array, weight: jax.Array, window: Window) -> bool:
    """Return whether oneDNN supports a convolution, which needs float32, 1 to 3 spatial axes and no negative padding.

    Args:
        x: (batch, inputs, *space).
        weight: (outputs, inputs / groups, *kernel).
        window: the window over the spatial axes.
    """
    return supports(x, weight) and 1 <= len(window.kernel) <= 3 and min(map(min, window.padding)) >= 0


def convolution(
    x: jax.Array, weight: jax.Array, bias: jax.Array | None, window: Window, *, relu: bool = False
) -> jax.Array:
    """Convolve an array, add a bias, and set negative results to 0 if `relu`. JAX cannot differentiate the result.

    Args:
        x: (batch, *space, inputs).
        weight: (outputs, inputs / groups, *kernel), in Caffe's order.
        bias: (outputs,), or None.
        window: the window over the spatial axes.
        relu: whether to apply a ReLU.

    Returns:
        (batch, *output space, outputs).
    """
    groups = x.shape[-1] // weight.shape[1]
    _check_shapes(x.shape[-1], weight.shape[1] * groups, len(weight), bias)
    shape = (x.shape[0], *window.output_size(x.shape[1:-1]), len(weight))
    arrays = [x, weight] if bias is None else [x, weight, bias]
    return _call("convolution", arrays, [shape], relu=relu, **_window_attributes(window, groups))[0]


def convolution_diffs(
    x: jax.Array, dy: jax.Array, weight: jax.Array, window: Window, needed: NeededDiffs, *, needs_bias: bool
) -> tuple[jax.Array | None, jax.Array | None, jax.Array | None]:
    """Return the diffs of a convolution's input, weight and bias, with None for diffs that are not needed.

    Args:
        x: the input, (batch, *space, inputs).
        dy: the diff of the output, (batch, *output space, outputs).
        weight: (outputs, inputs / groups, *kernel).
        window: the window over the spatial axes.
        needed: the diffs of input and weight that are needed.
        needs_bias: whether the diff of the bias is needed.
    """
    bias_shape, attributes = (
        [weight.shape[:1]] * needs_bias,
        _window_attributes(window, x.shape[-1] // weight.shape[1]),
    )
    if not needed.weight:
        dx = _call("input_diff", [dy, weight], [x.shape], **attributes)[0] if needed.x else None
        return dx, None, sum_rows(dy.reshape(-1, dy.shape[-1])) if needs_bias else None
    if not needed.x:
        d_weight, *d_bias = _call("weight_diff", [x, dy], [weight.shape, *bias_shape], **attributes)
        return None, d_weight, d_bias[0] if needs_bias else None
    dx, d_weight, *d_bias = _call(
        "convolution_diffs", [x, dy, weight], [x.shape, weight.shape, *bias_shape], **attributes
    )
    return dx, d_weight, d_bias[0] if needs_bias else None


def matmul(
    a: jax.Array,
    b: jax.Array,
    bias: jax.Array | None = None,
    *,
    transpose_a: bool = False,
    transpose_b: bool = False,
    relu: bool = False,
) -> jax.Array:
    """Return the matrix product of `a` and `b`, plus a bias (columns,).

    If `transpose_a` or `transpose_b` is true, that matrix is transposed first. If `relu` is true, negative results are
    set to 0.
    """
    shape = (a.shape[1 if transpose_a else 0], b.shape[0 if transpose_b else 1])
    _check_shapes(a.shape[0 if transpose_a else 1], b.shape[1 if transpose_b else 0], shape[1], bias)
    arrays = [a, b] if bias is None else [a, b, bias]
    return _call("matmul", arrays, [shape], transpose_a=transpose_a, transpose_b=transpose_b, relu=relu)[0]


def matmul_diffs(
    rows: jax.Array, dy: jax.Array, weight: jax.Array, needed: NeededDiffs, *, transpose: bool
) -> tuple[jax.Array | None, jax.Array | None]:
    """Return the diffs of a matrix product's rows and weight, with None for diffs that are not needed.

    Args:
        rows: (rows, inputs).
        dy: the diff of the product, (rows, outputs).
        weight: (outputs, inputs), or (inputs, outputs) if `transpose`.
        needed: the diffs that are needed.
        transpose: whether the weight's first axis is the inputs.
    """
    if needed.x and needed.weight:
        dx, d_weight = _call("matmul_diffs", [rows, dy, weight], [rows.shape, weight.shape], transpose=transpose)
        return dx, d_weight
    left, right = (rows, dy) if transpose else (dy, rows)
    return (
        matmul(dy, weight, transpose_b=transpose) if needed.x else None,
        matmul(left, right, transpose_a=True) if needed.weight else None,
    )


def supports_max_pooling(x: jax.Array, window: Window) -> bool:
    """Return whether oneDNN supports a maximum pooling.

    The array must be float32, and a window must have fewer than 128 cells and be larger than the padding.

    Args:
        x: an array with 4 axes, in any order.
        window: the window over height and width.
    """
    padding = zip(window.padding, window.kernel, strict=True)
    return supports(x) and math.prod(window.kernel) < 128 and all(0 <= pad < k for pads, k in padding for pad in pads)


def max_pool(x: jax.Array, window: Window) -> tuple[jax.Array, jax.Array]:
    """Return the maximum of each window and the index of its cell as int8, both of shape (batch, *out, channels).

    The cells of a window are numbered in row-major order. If several cells have the maximum, the first is chosen.

    Args:
        x: (batch, height, width, channels).
        window: the window over height and width.
    """
    shape = (x.shape[0], *window.output_size(x.shape[1:3]), x.shape[3])
    results = [jax.ShapeDtypeStruct(shape, np.float32), jax.ShapeDtypeStruct(shape, np.int8)]
    y, indices = _ffi_call("max_pool", results, [x], **_pooling_attributes(window))
    return y, indices


def max_pool_diff(indices: jax.Array, dy: jax.Array, size: tuple[int, int], window: Window) -> jax.Array:
    """Return the diff of the input of `max_pool`, (batch, *size, channels).

    Args:
        indices: the indices of the cells, from `max_pool`.
        dy: the diff of the output, (batch, *out, channels), float32.
        size: height and width of the input.
        window: the window over height and width.
    """
    result = jax.ShapeDtypeStruct((dy.shape[0], *size, dy.shape[3]), np.float32)
    return _ffi_call("max_pool_diff", [result], [indices, dy], **_pooling_attributes(window))[0]


def _pooling_attributes(window: Window) -> dict[str, Any]:
    low, high = zip(*window.padding, strict=True)
    return _int64_arrays(kernel=window.kernel, stride=window.stride, low=low, high=high)


def momentum_update(
    grad: jax.Array,
    weight: jax.Array,
    slot: jax.Array,
    rate: jax.Array,
    *,
    lr_mult: float,
    decay: float,
    momentum: float,
) -> tuple[jax.Array, jax.Array]:
    """Return a weight and its momentum slot after a step of SGD with momentum and weight decay.

    The new slot is `rate * lr_mult * (grad + decay * weight) + momentum * slot`, and is subtracted from the weight.
    The results are computed in place if XLA allows it.

    Args:
        grad, weight, slot: arrays of one shape, float32.
        rate: the learning rate, a scalar, float32.
        lr_mult, decay, momentum: the settings, rounded to float32.
    """
    settings = {name: np.float32(x) for name, x in (("lr_mult", lr_mult), ("decay", decay), ("momentum", momentum))}
    results = [jax.ShapeDtypeStruct(grad.shape, np.float32)] * 2
    new_weight, new_slot = _ffi_call("momentum_update", results, [grad, weight, slot, rate], {1: 0, 2: 1}, **settings)
    return new_weight, new_slot


def sum_rows(x: jax.Array, factor: float = 1) -> jax.Array:
    """Return the sum of the rows of `x`, multiplied by a factor, as (channels,).

    Args:
        x: (rows, channels), float32.
        factor: the number by which the sums are multiplied.
    """
    result = jax.ShapeDtypeStruct(x.shape[1:], np.float32)
    return _ffi_call("row_sums", [result], [x], factor=np.float32(factor))[0]


def channel_moments(x: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return the mean and the variance of each channel of (rows, channels), float32."""
    result = jax.ShapeDtypeStruct(x.shape[1:], np.float32)
    mean, variance = _ffi_call("channel_moments", [result, result], [x])
    return mean, variance


def normalization_sums(
    x: jax.Array,
    dy: jax.Array,
    mean: jax.Array,
    scale: jax.Array,
    factor: jax.Array,
    bias: jax.Array,
    *,
    relu: bool,
) -> tuple[jax.Array, jax.Array]:
    """Return the sums over the rows of `dy * x_hat` and of `dy`, where `x_hat = (x - mean) * scale`.

    Args:
        x, dy: (rows, channels), float32.
        mean, scale, factor, bias: (channels,), float32.
        relu: whether `dy` counts as 0 where `x_hat * factor + bias` is not positive.
    """
    result = jax.ShapeDtypeStruct(mean.shape, np.float32)
    arrays = [x, dy, mean, scale, factor, bias]
    products, sums = _ffi_call("normalization_sums", [result, result], arrays, relu=relu)
    return products, sums


def normalize_response(x: jax.Array, **settings: Any) -> jax.Array:
    """Return `x * (k + alpha * sum of squares) ** -beta`, of the shape of `x`.

    Args:
        x: (batch, height, width, channels), float32.
        settings: `size`, the odd number of neighboring channels, or of cells along a side of the window, that are
            summed; the constants `k`, `alpha` and `beta`, rounded to float32; and `within_channel`, whether the squares
            of a window of the plane are summed instead of neighboring channels.
    """
    return _ffi_call("normalize_response", [_like(x)], [x], **_response_attributes(**settings))[0]


def normalize_response_diff(x: jax.Array, dy: jax.Array, **settings: Any) -> jax.Array:
    """Return the diff of `x` of `normalize_response`, from the diff `dy` of its result."""
    return _ffi_call("normalize_response_diff", [_like(x)], [x, dy], **_response_attributes(**settings))[0]


def rectangle_maxima(x: jax.Array, rectangles: jax.Array) -> jax.Array:
    """Return the maximum of each channel over each rectangle, (count, channels), 0 for an empty rectangle.

    Args:
        x: (batch, height, width, channels), float32.
        rectangles: (count, 5), int32: the image, the first row, the row after the last, the first column, and the
            column after the last. Parts of rectangles beyond the image do not count.
    """
    result = jax.ShapeDtypeStruct((rectangles.shape[0], x.shape[3]), np.float32)
    return _ffi_call("rectangle_maxima", [result], [x, rectangles])[0]


def rectangle_places(x: jax.Array, rectangles: jax.Array) -> jax.Array:
    """Return the place of each maximum of `rectangle_maxima`, row * width + column, as int32 (count, channels).

    If several cells have the maximum, the first is chosen. The place in an empty rectangle is 0.
    """
    result = jax.ShapeDtypeStruct((rectangles.shape[0], x.shape[3]), np.int32)
    return _ffi_call("rectangle_places", [result], [x, rectangles])[0]


def _like(x: jax.Array) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(x.shape, np.float32)


def _response_attributes(*, size: int, k: float, alpha: float, beta: float, within_channel: bool) -> dict[str, Any]:
    constants = {"k": np.float32(k), "alpha": np.float32(alpha), "beta": np.float32(beta)}
    return {"size": np.int64(size), "within_channel": within_channel, **constants}


def _check_shapes(inputs: int, weight_inputs: int, outputs: int, bias: jax.Array | None) -> None:
    """Raise `ValueError` if the shapes of inputs, weight and bias do not match.

    oneDNN receives only sizes and addresses, and would read beyond the end of an array.
    """
    if inputs != weight_inputs:
        raise ValueError(f"the data has {inputs} inputs, but the weight expects {weight_inputs}")
    if bias is not None and bias.shape != (outputs,):
        raise ValueError(f"the bias has shape {bias.shape}, but must have shape ({outputs},)")


def _window_attributes(window: Window, groups: int) -> dict[str, Any]:
    low, high = zip(*window.padding, strict=True)
    lists = _int64_arrays(stride=window.stride, dilation=window.dilation, low=low, high=high)
    return lists | {"groups": np.int64(groups)}


def _int64_arrays(**lists: Sequence[int]) -> dict[str, Any]:
    return {name: np.array(numbers, np.int64) for name, numbers in lists.items()}


def _call(
    name: str, arrays: Sequence[jax.Array], shapes: Sequence[tuple[int, ...]], **attributes: Any
) -> list[jax.Array]:
    if any(a.dtype != np.float32 for a in arrays):  # oneDNN would read the bytes as float32
        raise TypeError(f"all arrays for oneDNN must be float32, not {', '.join(str(a.dtype) for a in arrays)}")
    return _ffi_call(name, [jax.ShapeDtypeStruct(shape, np.float32) for shape in shapes], arrays, **attributes)


def _ffi_call(
    name: str,
    results: Sequence[Any],
    arrays: Sequence[jax.Array],
    aliases: dict[int, int] | None = None,
    **attributes: Any,
) -> list[jax.Array]:
    """Call a foreign function. `aliases` maps the index of an operand to the result that may reuse its memory."""
    call = jax.ffi.ffi_call(f"caffejax_{name}", results, vmap_method="sequential", input_output_aliases=aliases)
    return list(call(*arrays, **attributes))
