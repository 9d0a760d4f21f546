"""The nets of configs/ written by hand in flax.linen, for comparison in `plan_against_flax.py` and `gpu.py`.

Channels last, as flax has them, `nn.BatchNorm`, `nn.max_pool`, optax's SGD with momentum and weight decay. Parameters
are float32; `dtype` is what layers compute in.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import optax
from flax import linen as nn
from jax import lax

Dtype = Any
CEIL = ((0, 1), (0, 1))  # what rounds a 3x3 window of stride 2 up, for sizes that leave a row over


class LeNet(nn.Module):
    dtype: Dtype
    size = (28, 28, 1)

    @nn.compact
    def __call__(self, x: jax.Array) -> Any:
        for features in (20, 50):
            x = nn.Conv(features, (5, 5), padding="VALID", dtype=self.dtype)(x)
            x = nn.max_pool(x, (2, 2), (2, 2))
        x = nn.relu(nn.Dense(500, dtype=self.dtype)(x.reshape(len(x), -1)))
        return nn.Dense(10, dtype=self.dtype)(x)


class Cifar10Full(nn.Module):
    dtype: Dtype
    size = (32, 32, 3)

    @nn.compact
    def __call__(self, x: jax.Array) -> Any:
        conv = partial(nn.Conv, kernel_size=(5, 5), padding=2, dtype=self.dtype)
        mean = partial(nn.avg_pool, window_shape=(3, 3), count_include_pad=False)

        def norm(x: jax.Array) -> jax.Array:
            scale = 1 + 5e-5 * mean(jnp.square(x), padding=((1, 1), (1, 1)))
            return x * scale**-0.75

        x = norm(nn.relu(nn.max_pool(conv(32)(x), (3, 3), (2, 2), CEIL)))
        x = norm(mean(nn.relu(conv(32)(x)), strides=(2, 2), padding=CEIL))
        x = mean(nn.relu(conv(64)(x)), strides=(2, 2), padding=CEIL)
        return nn.Dense(10, dtype=self.dtype)(x.reshape(len(x), -1))


def apply_lrn(x: jax.Array) -> jax.Array:
    """Normalise across five neighbouring channels."""
    total = lax.reduce_window(jnp.square(x), 0.0, lax.add, (1, 1, 1, 5), (1, 1, 1, 1), "SAME")
    return x * (1 + (1e-4 / 5) * total) ** -0.75


class CaffeNet(nn.Module):
    dtype: Dtype
    size = (227, 227, 3)

    @nn.compact
    def __call__(self, x: jax.Array) -> Any:
        conv, dense = partial(nn.Conv, dtype=self.dtype), partial(nn.Dense, dtype=self.dtype)
        pool = partial(nn.max_pool, window_shape=(3, 3), strides=(2, 2))
        x = apply_lrn(pool(nn.relu(conv(96, (11, 11), 4, "VALID")(x))))
        x = apply_lrn(pool(nn.relu(conv(256, (5, 5), padding=2, feature_group_count=2)(x))))
        x = nn.relu(conv(384, (3, 3), padding=1)(x))
        x = nn.relu(conv(384, (3, 3), padding=1, feature_group_count=2)(x))
        x = pool(nn.relu(conv(256, (3, 3), padding=1, feature_group_count=2)(x)))
        x = x.reshape(len(x), -1)
        for _ in range(2):
            x = nn.Dropout(0.5, deterministic=False)(nn.relu(dense(4096)(x)))
        return dense(1000)(x)


class GoogLeNet(nn.Module):
    dtype: Dtype
    size = (224, 224, 3)

    @nn.compact
    def __call__(self, x: jax.Array) -> Any:
        dense = partial(nn.Dense, dtype=self.dtype)
        pool = partial(nn.max_pool, window_shape=(3, 3), strides=(2, 2), padding=CEIL)

        def conv(x: jax.Array, features: int, kernel: int, stride: int = 1) -> jax.Array:
            return nn.relu(nn.Conv(features, (kernel, kernel), stride, kernel // 2, dtype=self.dtype)(x))

        def inception(
            x: jax.Array, num_1x1: int, reduce3: int, num_3x3: int, reduce5: int, num_5x5: int, num_projected: int
        ) -> jax.Array:
            a, b, c = conv(x, num_1x1, 1), conv(conv(x, reduce3, 1), num_3x3, 3), conv(conv(x, reduce5, 1), num_5x5, 5)
            d = conv(nn.max_pool(x, (3, 3), (1, 1), ((1, 1), (1, 1))), num_projected, 1)
            return jnp.concatenate([a, b, c, d], -1)

        def auxiliary_classifier(x: jax.Array) -> jax.Array:
            x = conv(nn.avg_pool(x, (5, 5), (3, 3), count_include_pad=False, padding=CEIL), 128, 1)
            x = nn.relu(dense(1024)(x.reshape(len(x), -1)))
            return dense(1000)(nn.Dropout(0.7, deterministic=False)(x))

        x = conv(apply_lrn(pool(conv(x, 64, 7, 2))), 64, 1)
        x = inception(pool(apply_lrn(conv(x, 192, 3))), 64, 96, 128, 16, 32, 32)
        x = pool(inception(x, 128, 128, 192, 32, 96, 64))
        x = inception(x, 192, 96, 208, 16, 48, 64)
        first_logits = auxiliary_classifier(x)
        x = inception(x, 160, 112, 224, 24, 64, 64)
        x = inception(x, 128, 128, 256, 24, 64, 64)
        x = inception(x, 112, 144, 288, 32, 64, 64)
        second_logits = auxiliary_classifier(x)
        x = pool(inception(x, 256, 160, 320, 32, 128, 128))
        x = inception(x, 256, 160, 320, 32, 128, 128)
        x = jnp.mean(inception(x, 384, 192, 384, 48, 128, 128), (1, 2))
        return dense(1000)(nn.Dropout(0.4, deterministic=False)(x)), first_logits, second_logits


class SqueezeNet(nn.Module):
    dtype: Dtype
    size = (227, 227, 3)

    @nn.compact
    def __call__(self, x: jax.Array) -> Any:
        pool = partial(nn.max_pool, window_shape=(3, 3), strides=(2, 2), padding=CEIL)

        def conv(x: jax.Array, features: int, kernel: int, pad: int = 0, stride: int = 1) -> jax.Array:
            return nn.relu(nn.Conv(features, (kernel, kernel), stride, pad, dtype=self.dtype)(x))

        x = pool(conv(x, 64, 3, 0, 2))
        for fire_index, squeeze in zip(range(2, 10), (16, 16, 32, 32, 48, 48, 64, 64), strict=True):
            s = conv(x, squeeze, 1)
            x = jnp.concatenate([conv(s, 4 * squeeze, 1), conv(s, 4 * squeeze, 3, 1)], -1)
            x = pool(x) if fire_index in (3, 5) else x
        x = conv(nn.Dropout(0.5, deterministic=False)(x), 1000, 1)
        return jnp.mean(x, (1, 2))


class ResNet50(nn.Module):
    dtype: Dtype
    blocks: Sequence[int] = (3, 4, 6, 3)
    size = (224, 224, 3)

    @nn.compact
    def __call__(self, x: jax.Array) -> Any:
        conv = partial(nn.Conv, use_bias=False, dtype=self.dtype)
        norm = partial(nn.BatchNorm, use_running_average=False, momentum=0.999, epsilon=1e-5, dtype=self.dtype)
        x = nn.relu(norm()(conv(64, (7, 7), 2, 3)(x)))
        x = nn.max_pool(x, (3, 3), (2, 2), CEIL)
        for stage, repeats in enumerate(self.blocks):
            for i in range(repeats):
                width, stride = 64 << stage, 2 if stage and not i else 1
                shortcut = x if i else norm()(conv(4 * width, (1, 1), stride)(x))
                y = nn.relu(norm()(conv(width, (1, 1), stride)(x)))
                y = nn.relu(norm()(conv(width, (3, 3), padding=1)(y)))
                x = nn.relu(shortcut + norm()(conv(4 * width, (1, 1))(y)))
        return nn.Dense(1000, dtype=self.dtype)(jnp.mean(x, (1, 2)))


class MobileNet(nn.Module):
    dtype: Dtype
    size = (224, 224, 3)

    @nn.compact
    def __call__(self, x: jax.Array) -> Any:
        def block(x: jax.Array, features: int, kernel: int, stride: int = 1, groups: int = 1) -> jax.Array:
            shape, pad = (kernel, kernel), kernel // 2
            x = nn.Conv(features, shape, stride, pad, use_bias=False, feature_group_count=groups, dtype=self.dtype)(x)
            norm = nn.BatchNorm(use_running_average=False, momentum=0.999, epsilon=1e-5, dtype=self.dtype)
            return nn.relu(norm(x))

        x, width = block(x, 32, 3, 2), 32
        block_features = (64, 128, 128, 256, 256, *(512,) * 6, 1024, 1024)
        for features, stride in zip(block_features, (1, 2, 1, 2, 1, 2, 1, 1, 1, 1, 1, 2, 1), strict=True):
            x, width = block(block(x, width, 3, stride, width), features, 1), features
        x = nn.Conv(1000, (1, 1), dtype=self.dtype)(jnp.mean(x, (1, 2), keepdims=True))
        return x[:, 0, 0]


class Lstm(nn.Module):
    dtype: Dtype
    size = (20, 256)

    @nn.compact
    def __call__(self, x: jax.Array) -> Any:
        x = nn.RNN(nn.OptimizedLSTMCell(512, dtype=self.dtype))(x)
        return nn.Dense(1000, dtype=self.dtype)(x)


NETS: dict[str, Callable[..., Any]] = {
    "lenet": LeNet,
    "cifar10_full": Cifar10Full,
    "caffenet": CaffeNet,
    "googlenet": GoogLeNet,
    "squeezenet": SqueezeNet,
    "resnet50": ResNet50,
    "mobilenet": MobileNet,
    "lstm": Lstm,
}


def compute_loss(tops: Any, labels: jax.Array) -> jax.Array:
    """Return the mean cross-entropy, side exits with weight 0.3."""

    def cross_entropy(logits: jax.Array) -> jax.Array:
        logits = logits.astype(jnp.float32)
        return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()

    if not isinstance(tops, tuple):
        return cross_entropy(tops)
    main_loss, *auxiliary_losses = map(cross_entropy, tops)
    return main_loss + 0.3 * sum(auxiliary_losses)


def make_training_step(net: Any) -> tuple[Callable[[jax.Array, jax.Array], Any], Callable[..., Any]]:
    """Return `init(key, images)`, which makes the state, and `step(state, images, labels)`: new state and loss."""
    sgd = optax.chain(optax.add_decayed_weights(0.0005), optax.sgd(0.001, momentum=0.9))

    def init(key: jax.Array, images: jax.Array) -> Any:
        variables = net.init({"params": key, "dropout": key}, images)
        batch_stats = variables.get("batch_stats", {})
        return variables["params"], batch_stats, sgd.init(variables["params"]), jnp.int32(0), key

    def step(state: Any, images: jax.Array, labels: jax.Array) -> Any:
        params, batch_stats, opt_state, step_index, key = state
        dropout_key = jax.random.fold_in(key, step_index)

        def loss(params: Any) -> Any:
            variables = {"params": params, "batch_stats": batch_stats}
            tops, new_batch_stats = net.apply(variables, images, mutable=["batch_stats"], rngs={"dropout": dropout_key})
            return compute_loss(tops, labels), new_batch_stats.get("batch_stats", {})

        (value, new_batch_stats), grads = jax.value_and_grad(loss, has_aux=True)(params)
        updates, opt_state = sgd.update(grads, opt_state, params)
        return (optax.apply_updates(params, updates), new_batch_stats, opt_state, step_index + 1, key), value

    return init, step
