"""Helpers for layer functions: axes, tuples of tops, zero gradients, receptive windows, and NumPy or JAX arrays."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ...base.errors import require
from ..ops.window import Window
from ..schema.caffe_pb2 import PermuteParameter
from .context import Context, Shape

_MAX_SIDE = 2**24  # cells along a side


def canonical_axis(axis: int, shape: Shape, *, name: str = "axis") -> int:
    """Return the index of an axis, 0 .. len(shape) - 1. A negative axis counts from the end.

    Raises:
        LayerError: if the blob has no such axis.
    """
    n = len(shape)
    require(-n <= axis < n, f"{name} {axis} is out of range for a blob with {n} axes, shape {shape}")
    return axis % n


def is_after_first_axis(p: Any) -> bool:
    """Return whether the layer's `axis` is not axis 0, so that each row is computed independently."""
    return bool(p.axis > 0)


def pad_to_four_axes(shape: Shape) -> Shape:
    """Append axes of size 1 to a shape until it has four axes, as all blobs have in some forks."""
    return (*shape, 1, 1, 1)[: max(4, len(shape))]


def as_nchw(shape: Shape, name: str = "bottom 0") -> tuple[int, int, int, int]:
    """Return num, channels, height and width, with 1 for missing axes, as Caffe's oldest layers read shapes.

    Raises:
        LayerError: if the shape has more than four axes.
    """
    require(len(shape) <= 4, f"{name} has {len(shape)} axes, shape {shape}; this layer supports at most 4")
    num, channels, height, width = (*shape, 1, 1, 1, 1)[:4]
    return num, channels, height, width


def check_side_length(size: Shape) -> None:
    """Check that tables whose lengths are the height and width of `size` can be allocated.

    Raises:
        LayerError: if a side has more than 2^24 cells.
    """
    longest = max(n for n in (*size, 0) if isinstance(n, int))
    require(
        longest <= _MAX_SIDE,
        f"the settings, or the bottom, require a plane of height {size[0]} and width {size[1]}, but a side has at "
        f"most {_MAX_SIDE} cells",
    )


def permuted_axes(p: PermuteParameter, shape: Shape) -> tuple[int, ...]:
    """Return the permutation of axes that a layer's `order` lists: entry k is the bottom's axis that becomes axis k."""
    order = list(p.order)
    require(
        len(set(order)) == len(order) and all(axis < len(shape) for axis in order),
        f"order must list axes of the bottom, shape {shape}, each at most once, not {order}",
    )
    return (*order, *(axis for axis in range(len(shape)) if axis not in order))


def as_tuple(tops: Any) -> tuple[Any, ...]:
    """Return tops, or their gradients, as a tuple. An array becomes a tuple of one array."""
    return tuple(tops) if isinstance(tops, tuple | list) else (tops,)


def first_top(tops: Any) -> Any:
    """Return the first of the tops, or of their gradients. The argument is an array or a tuple."""
    return as_tuple(tops)[0]


def same_shape(x: Any) -> list[tuple[int, ...]]:
    """Return a list with the bottom's shape; used as `Traced.top_shapes` if the only top has this shape."""
    return [x.shape]


def no_gradient(*bottoms: Any, y: Any, dy: Any) -> tuple[None, ...]:
    """Return None (a zero gradient) for each bottom; used as `Gradient.backward`."""
    return (None,) * len(bottoms)


def array_namespace(*arrays: Any) -> ModuleType:
    """Return `numpy` if all arrays are NumPy arrays, else `jax.numpy`."""
    return np if all(isinstance(a, np.ndarray) for a in arrays) else jnp


def rsqrt(x: Any) -> Any:
    """Return 1 / sqrt(x)."""
    return 1 / np.sqrt(x) if isinstance(x, np.ndarray) else jax.lax.rsqrt(x)


def stop_gradient(x: Any) -> Any:
    """Return x without a gradient."""
    return x if isinstance(x, np.ndarray) else jax.lax.stop_gradient(x)


def promote_numpy(x: np.ndarray) -> np.ndarray:
    """Cast dtypes of less than 32 bits, such as bfloat16, to float32."""
    return x.astype(np.float32) if x.dtype.itemsize < 4 else x


def numpy_rng(ctx: Context) -> np.random.Generator:
    """Return a NumPy generator seeded by the layer's random key in this pass."""
    return np.random.default_rng(np.asarray(jax.random.key_data(ctx.key)).ravel())


def pointwise_window(bottom: Any) -> Window:
    """Return the window of one pixel at the same position; used as `LayerTraits.receptive_window`."""
    n = len(bottom.shape) - 2
    return Window.symmetric((1,) * n, (1,) * n, (0,) * n)


def global_window(bottom: Any) -> None:
    """Return None, which stands for the whole plane; used as `LayerTraits.receptive_window`."""
