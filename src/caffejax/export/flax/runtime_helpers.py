"""Source code of the helper functions and modules that generated files include if they use them."""

from __future__ import annotations

SCALE = "Scale"  # the module that may be merged into a BatchNorm
HELPERS = {
    SCALE: '''
class Scale(nnx.Module):
    """Multiply by learned factors and add learned biases."""

    def __init__(self, shape: tuple[int, ...], use_bias: bool = True) -> None:
        self.scale = nnx.Param(jnp.ones(shape))
        self.bias = nnx.Param(jnp.zeros(shape)) if use_bias else None

    def __call__(self, x: jax.Array) -> jax.Array:
        x = x * self.scale[...]
        return x if self.bias is None else x + self.bias[...]
''',
    "Bias": '''
class Bias(nnx.Module):
    """Add learned biases."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.bias = nnx.Param(jnp.zeros(shape))

    def __call__(self, x: jax.Array) -> jax.Array:
        return x + self.bias[...]
''',
    "PReLU": '''
class PReLU(nnx.Module):
    """A leaky ReLU with a learned slope for each channel."""

    def __init__(self, features: int, slope: float = 0.25) -> None:
        self.slope = nnx.Param(jnp.full((features,), slope))

    def __call__(self, x: jax.Array) -> jax.Array:
        return jnp.where(x > 0, x, self.slope[...] * x)
''',
    "GroupedConvTranspose": '''
class GroupedConvTranspose(nnx.Module):
    """A transposed convolution in groups of channels, which nnx.ConvTranspose does not support."""

    def __init__(
        self,
        in_features: int,
        out_features: int,
        kernel_size: tuple[int, ...],
        strides: int | tuple[int, ...],
        padding: tuple[tuple[int, int], ...],
        groups: int,
        kernel_dilation: int | tuple[int, ...] = 1,
        use_bias: bool = True,
        *,
        rngs: nnx.Rngs,
    ) -> None:
        shape = (*kernel_size, in_features // groups, out_features)
        self.kernel = nnx.Param(nnx.initializers.lecun_normal()(rngs.params(), shape))
        self.bias = nnx.Param(jnp.zeros(out_features)) if use_bias else None
        self.strides, self.padding, self.groups, self.kernel_dilation = strides, padding, groups, kernel_dilation

    def __call__(self, x: jax.Array) -> jax.Array:
        strides, dilation = (
            (n,) * (x.ndim - 2) if isinstance(n, int) else n for n in (self.strides, self.kernel_dilation)
        )
        space = "HWD"[: x.ndim - 2]
        x = jax.lax.conv_general_dilated(
            x,
            self.kernel[...],
            window_strides=(1,) * (x.ndim - 2),
            padding=self.padding,
            lhs_dilation=strides,
            rhs_dilation=dilation,
            dimension_numbers=(f"N{space}C", f"{space}IO", f"N{space}C"),
            feature_group_count=self.groups,
        )
        return x if self.bias is None else x + self.bias[...]
''',
    "local_response_norm": '''
def local_response_norm(x: jax.Array, size: int, alpha: float, beta: float, k: float) -> jax.Array:
    """Divide by a power of k + alpha / size * the sum of squares over neighbouring channels."""
    half, channels = size // 2, x.shape[-1]
    squares = jnp.pad(jnp.square(x), [(0, 0)] * (x.ndim - 1) + [(half, half)])
    total = sum((squares[..., i : i + channels] for i in range(size)), jnp.zeros_like(x))
    return x * (k + alpha / size * total) ** -beta
''',
    "local_contrast_norm": '''
def local_contrast_norm(x: jax.Array, size: int, alpha: float, beta: float) -> jax.Array:
    """Divide by a power of 1 + alpha * the mean of squares over a window of each channel."""
    around = (size // 2, size // 2)
    squares = nnx.avg_pool(jnp.square(x), (size, size), padding=(around, around))
    return x * (1 + alpha * squares) ** -beta
''',
    "standardize": '''
def standardize(x: jax.Array, axis: tuple[int, ...], eps: float) -> jax.Array:
    """Subtract the mean and divide by the standard deviation plus eps."""
    x = x - jnp.mean(x, axis=axis, keepdims=True)
    return x / (jnp.std(x, axis=axis, keepdims=True) + eps)
''',
    "normalize_by_batch": '''
def normalize_by_batch(x: jax.Array, eps: float) -> jax.Array:
    """Normalize each channel to mean 0 and variance 1 over the batch, also in eval mode."""
    axes = tuple(range(x.ndim - 1))
    return (x - jnp.mean(x, axis=axes)) / jnp.sqrt(jnp.var(x, axis=axes) + eps)
''',
    "unit_length": '''
def unit_length(x: jax.Array, axis: int | tuple[int, ...], eps: float) -> jax.Array:
    """Divide by the L2 norm along some axes. The squared norm is increased by eps."""
    return x / jnp.sqrt(jnp.sum(jnp.square(x), axis=axis, keepdims=True) + eps)
''',
    "shuffle_channels": '''
def shuffle_channels(x: jax.Array, groups: int) -> jax.Array:
    """Interleave the channels of the groups."""
    return x.reshape(*x.shape[:-1], groups, -1).swapaxes(-1, -2).reshape(x.shape)
''',
    "max_pool_with_indices": '''
def max_pool_with_indices(
    x: jax.Array,
    window: tuple[int, int],
    strides: tuple[int, int] = (1, 1),
    padding: tuple[tuple[int, int], tuple[int, int]] = ((0, 0), (0, 0)),
) -> tuple[jax.Array, jax.Array]:
    """Return maxima and their indices in the plane, row * width + column. In a tie the first index wins."""
    rows, columns = x.shape[1:3]
    indices = jnp.broadcast_to(jnp.arange(rows * columns, dtype=x.dtype).reshape(1, rows, columns, 1), x.shape)

    def larger(a: tuple[jax.Array, jax.Array], b: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        first = (a[0] > b[0]) | ((a[0] == b[0]) & (a[1] < b[1]))
        return jnp.where(first, a[0], b[0]), jnp.where(first, a[1], b[1])

    operands = (jax.lax.stop_gradient(x), indices)
    start = (jnp.array(-jnp.inf, x.dtype), jnp.array(-1, x.dtype))
    around = ((0, 0), *padding, (0, 0))
    _, max_indices = jax.lax.reduce_window(operands, start, larger, (1, *window, 1), (1, *strides, 1), around)
    return nnx.max_pool(x, window, strides=strides, padding=padding), max_indices
''',
    "max_unpool": '''
def max_unpool(x: jax.Array, indices: jax.Array, size: tuple[int, int]) -> jax.Array:
    """Copy each value to its index, row * width + column, in a plane of the given size; other values are 0."""
    batch, channels = x.shape[0], x.shape[-1]
    plane = jnp.zeros((batch, size[0] * size[1], channels), x.dtype)
    flat = indices.reshape(batch, -1, channels).astype(int)
    plane = plane.at[jnp.arange(batch)[:, None, None], flat, jnp.arange(channels)].set(x.reshape(flat.shape))
    return plane.reshape(batch, *size, channels)
''',
    "interpolate": '''
def interpolate(x: jax.Array, size: tuple[int, int]) -> jax.Array:
    """Resize (batch, height, width, channels) bilinearly with aligned corners."""
    for axis, n in enumerate(size, start=1):
        old = x.shape[axis]
        positions = jnp.arange(n) * ((old - 1) / max(n - 1, 1))
        low = jnp.clip(jnp.floor(positions).astype(int), 0, old - 1)
        high = jnp.minimum(low + 1, old - 1)
        weight = (positions - low).reshape(-1, *(1,) * (x.ndim - axis - 1))
        x = jnp.take(x, low, axis=axis) * (1 - weight) + jnp.take(x, high, axis=axis) * weight
    return x
''',
}
