"""Layers of MyCaffe that keep encodings of examples by label: Decode, Knn, DataSequence; and AccuracyDecode."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from ...errors import require
from ...kernels.vma import vary_as
from ..context import Context, ParamSpec, Shape
from ..dtype_policy import promote
from ..helpers import no_gradient, refuse_set
from ..registry import define_layer
from ..types import Gradient, Indices, LayerDocs, Signature, Traced

Arrays = tuple[jax.Array, ...]

_LABELS = 10
_LABELS_DOC = f"MyCaffe's tables grow with the labels; here they are 0 to {_LABELS - 1}"


def decode(ctx: Context, blobs: Arrays, x: jax.Array, *labels: jax.Array) -> tuple[Any, Arrays]:
    """Squared distances of encodings to the centroid of each label, (N, labels, 1, 1); a second top has the centroids.

    Bottoms: encodings (N, ...) and, to train, labels (N, ...), of which the first of an item counts. Items are taken in
    their order. In the phase TRAIN a label's centroid is the mean of its encodings, after N * `cache_size` of them a
    running mean, unless `enable_centroid_update` is false. With `target: KNN` the distance is the mean of the `k`
    smallest to the label's last N * `cache_size` encodings. Ignored labels are at the largest distance. The second top
    is 0 until every label has N * `cache_size` encodings. No gradient passes.

    Blobs: centroids (labels, D, 1, 1), whether they are complete, and the number of encodings, (labels, 1, 1, 1) each;
    with KNN also the encodings (labels, N * cache_size, D, 1).
    """
    p = ctx.param
    x = lax.stop_gradient(promote(x).reshape(x.shape[0], -1))
    capacity = x.shape[0] * p.cache_size
    stored = tuple(
        b.reshape(b.shape[0], *((-1,) if i == 0 else b.shape[1:3] if i == 3 else ())) for i, b in enumerate(blobs)
    )
    ignored = jnp.isin(jnp.arange(stored[0].shape[0]), jnp.asarray([*p.ignore_label, *p.ignore_labels], jnp.int32))
    trains = ctx.training and bool(labels) and p.enable_centroid_update

    def update(stored: Arrays, now: tuple[jax.Array, jax.Array]) -> Arrays:
        centroids, complete, counts, *cache = stored
        item, label = now
        weight = 1 / jnp.minimum(counts[label] + 1, capacity)
        cache = [c.at[label, counts[label].astype(jnp.int32) % capacity].set(item) for c in cache]
        centroids = centroids.at[label].set(weight * item + (1 - weight) * centroids[label])
        counts = counts.at[label].add(1)
        return centroids, jnp.where((counts >= capacity) & ~ignored, 1.0, complete), counts, *cache

    def step(stored: Arrays, now: tuple[jax.Array, jax.Array]) -> tuple[Arrays, jax.Array]:
        stored = update(stored, now) if trains else stored
        return stored, _distances(p, stored, now[0])

    first = labels[0].reshape(x.shape[0], -1)[:, 0].astype(jnp.int32) if labels else jnp.zeros(x.shape[0], jnp.int32)
    flat = tuple(b.reshape(b.shape[0]) if i in (1, 2) else b for i, b in enumerate(stored))
    flat, distances = lax.scan(step, tuple(vary_as(f, x, first) for f in flat), (x, first))
    top = jnp.where(ignored, jnp.finfo(jnp.float32).max, distances)[:, :, None, None]
    new = tuple(f.reshape(b.shape).astype(b.dtype) for f, b in zip(flat, blobs, strict=True))
    if ctx.n_tops == 1:
        return top, new
    is_complete = jnp.all((new[1].ravel() > 0) | ignored)
    return (top, jnp.where(is_complete, new[0], 0)), new


def _distances(p: Any, stored: Arrays, item: jax.Array) -> jax.Array:
    """Return the squared distances (labels,) of an encoding (D,) to the labels."""
    centroids, _, counts, *cache = stored
    if not cache:
        return jnp.sum(jnp.square(item - centroids), axis=1)
    squared = jnp.sum(jnp.square(item - cache[0]), axis=2)
    valid = jnp.arange(squared.shape[1]) < counts[:, None]
    return jax.vmap(lambda d, m: _mean_of_smallest(d, m, p.k))(squared, valid)


def _mean_of_smallest(x: jax.Array, valid: jax.Array, k: int) -> jax.Array:
    """Return the mean of the k smallest entries that are there, or 0 if none is; k <= 0 means all."""
    order = jnp.sort(jnp.where(valid, x, jnp.inf))[: k if k > 0 else None]
    chosen = jnp.isfinite(order)
    return jnp.sum(jnp.where(chosen, order, 0)) / jnp.maximum(jnp.sum(chosen), 1)


def _require_items(x: Any) -> None:
    require(bool(x.shape), "bottom 0 must have items along its first axis, but it is a scalar")


def decode_params(ctx: Context, x: Any, *labels: Any) -> list[ParamSpec]:
    p = ctx.param
    _require_items(x)
    require(p.target != p.PREGEN, "target PREGEN, targets drawn at random, is not supported")
    require(p.cache_size > 0, f"cache_size must be positive, not {p.cache_size}")
    for other in labels:
        require(
            other.shape[:1] == x.shape[:1], f"bottom 1 must have a label for each of {x.shape[0]} items: {other.shape}"
        )
    n = p.pregen_label_count if p.pregen_label_count > 0 else _LABELS
    size = math.prod(x.shape[1:])
    shapes = [(n, size, 1, 1), (n, 1, 1, 1), (n, 1, 1, 1)]
    shapes += [(n, x.shape[0] * p.cache_size, size, 1)] if p.target == p.KNN else []
    return [ParamSpec(shape, learnable=False) for shape in shapes]


define_layer(
    Signature("Decode", bottoms=(1, 2), tops=(1, 2), param="decode_param", in_place=False),
    Traced(decode, params=decode_params, stateful=True),
    Gradient(no_gradient, overrides_autodiff=True, stops_gradient=True, indices=Indices((1,))),
    docs=LayerDocs(
        origin="MyCaffe",
        unsupported=dict.fromkeys(("shard", "joined"), "items update the centroids one after the other"),
        restrictions=f"{_LABELS_DOC}, or fewer than pregen_label_count if it is set. The first encoding of a label "
        "counts as much as the others. Not supported: target PREGEN. No recorded case.",
    ),
)


def accuracy_decode(ctx: Context, distances: jax.Array, labels: jax.Array) -> jax.Array:
    """Fraction of items whose label, the first of each, is at the smallest distance; a scalar.

    Bottoms: distances (N, labels) and labels (N, ...). Items with a label among `ignore_label` and `ignore_labels` are
    not counted.
    """
    p, n = ctx.param, distances.shape[0]
    refuse_set(p, ("top_k", "axis"), "only the nearest label counts; remove it")
    require(labels.shape[:1] == (n,), f"bottom 1 must have a label for each of the {n} items, not shape {labels.shape}")
    first = labels.reshape(n, -1)[:, 0].astype(jnp.int32)
    ignored = [*p.ignore_labels, *([p.ignore_label] if p.HasField("ignore_label") else [])]
    counted = ~jnp.isin(first, jnp.asarray(ignored, jnp.int32))
    right = (jnp.argmin(distances.reshape(n, -1), axis=1) == first) & counted
    return jnp.sum(right, dtype=jnp.float32) / jnp.sum(counted)


define_layer(
    Signature("AccuracyDecode", bottoms=2, param="accuracy_param", fork_settings=("ignore_labels",)),
    Traced(accuracy_decode),
    Gradient(exists=False, indices=Indices((1,))),
    docs=LayerDocs(origin="MyCaffe"),
)


def knn(ctx: Context, blobs: Arrays, x: jax.Array, *labels: jax.Array) -> tuple[jax.Array, Arrays]:
    """Scores of labels by the nearest examples of the last batches, (N, num_output, 1, 1): 1 for the nearest label.

    Bottoms: encodings (N, ...) and labels (N, ...). In the phase TRAIN the batch is stored, in place of the oldest of
    `max_stored_batches`, and the top is 0. In TEST the distance to a label is the mean of the `k` smallest distances to
    its stored examples, and its score falls from 1 for the nearest to 0 for the farthest label, and is 0 for labels
    without examples. No gradient passes.
    """
    p, (count, stored, numbers) = ctx.param, blobs
    n = x.shape[0]
    x = lax.stop_gradient(promote(x).reshape(n, -1))
    top = jnp.zeros((n, p.num_output, 1, 1), x.dtype)
    if ctx.training:
        slot = count.astype(jnp.int32)[0] % stored.shape[0]
        batch = labels[0].reshape(n, -1)[:, 0].astype(numbers.dtype)
        return top, (count + 1, stored.at[slot].set(x.astype(stored.dtype)), numbers.at[slot].set(batch))
    valid = jnp.repeat(jnp.arange(stored.shape[0]) < count, n)
    examples, their = stored.reshape(-1, x.shape[1]), numbers.ravel().astype(jnp.int32)
    of_label = valid & (their == jnp.arange(p.num_output)[:, None])
    present = jnp.any(of_label, axis=1)

    def scores(item: jax.Array) -> jax.Array:
        distance = jnp.linalg.norm(examples - item, axis=1)
        means = jax.vmap(lambda m: _mean_of_smallest(distance, m, p.k))(of_label)
        least, most = (f(means, where=present, initial=i) for f, i in ((jnp.min, jnp.inf), (jnp.max, -jnp.inf)))
        return jnp.where(present, 1 - (means - least) / jnp.where(most > least, most - least, 1), 0)

    return lax.map(scores, x)[:, :, None, None].astype(top.dtype), blobs


def knn_params(ctx: Context, x: Any, *labels: Any) -> list[ParamSpec]:
    _require_items(x)
    p, n = ctx.param, x.shape[0]
    require(p.num_output > 0 and p.max_stored_batches > 0, "num_output and max_stored_batches must be positive")
    require(bool(labels) or not ctx.training, "needs labels, bottom 1, to train")
    shapes: list[Shape] = [(1,), (p.max_stored_batches, n, math.prod(x.shape[1:])), (p.max_stored_batches, n)]
    return [ParamSpec(shape, learnable=False) for shape in shapes]


define_layer(
    Signature("Knn", bottoms=(1, 2), param="knn_param", in_place=False),
    Traced(knn, params=knn_params, stateful=True),
    Gradient(no_gradient, overrides_autodiff=True, stops_gradient=True, indices=Indices((1,))),
    docs=LayerDocs(
        origin="MyCaffe",
        unsupported={
            "shard": "each device would store its items only",
            "symbolic_batch": "the stored batches have the batch size of the net",
        },
        restrictions="Each item is compared with each stored item; MyCaffe reads the first of a batch. Nets for "
        "training and testing need batches of one size. No recorded case.",
    ),
)


def data_sequence(ctx: Context, blobs: Arrays, x: jax.Array, labels: jax.Array) -> tuple[Arrays, Arrays]:
    """Tuples of examples to compare: the bottom, and for each item a stored one of its label and `k` of other labels.

    Bottoms: examples (N, ...) and labels (N,). Tops: 2 + k like bottom 0 and, with `output_labels`, the labels of the
    tuples (N, 2 + k, 1, 1). Each batch is stored first, the last `cache_size` examples of each of `label_count` labels
    from `label_start` on. With k = 0 and `balance_matches` the second example is of the item's label for items of even
    index, and of another label for the others. Stored examples are drawn at random. No gradient passes.
    """
    p, n = ctx.param, x.shape[0]
    cache, counts = blobs
    rows, number = x.reshape(n, -1), labels.reshape(n).astype(jnp.int32) - p.label_start

    def store(
        stored: tuple[jax.Array, jax.Array], now: tuple[jax.Array, jax.Array]
    ) -> tuple[tuple[jax.Array, jax.Array], None]:
        (cache, counts), (row, label) = stored, now
        slot = counts[label].astype(jnp.int32) % cache.shape[1]
        return (cache.at[label, slot].set(row.astype(cache.dtype)), counts.at[label].add(1)), None

    start = vary_as(cache, rows, number), vary_as(counts, rows, number)
    (cache, counts), _ = lax.scan(store, start, (rows, number))
    is_own = number[:, None] == jnp.arange(len(counts))
    filled = jnp.minimum(counts, cache.shape[1])
    tops, chosen = [x], [number]
    for i in range(1 + p.k):
        of_label, of_place = jax.random.split(jax.random.fold_in(ctx.key, i))
        matches = (jnp.arange(n) % 2 == 0 if p.balance_matches and p.k == 0 else jnp.ones(n, bool)) & (i == 0)
        may = jnp.where(matches[:, None], is_own, ~is_own) & (filled > 0)
        may = jnp.where(jnp.any(may, axis=1, keepdims=True), may, is_own)
        label = jax.random.categorical(of_label, jnp.where(may, 0.0, -jnp.inf), axis=1)
        slot = jnp.floor(jax.random.uniform(of_place, (n,)) * filled[label]).astype(jnp.int32)
        tops.append(cache[label, slot].reshape(x.shape).astype(x.dtype))
        chosen.append(label)
    if p.output_labels:
        tops.append((jnp.stack(chosen, axis=1) + p.label_start).astype(x.dtype)[:, :, None, None])
    return tuple(lax.stop_gradient(t) for t in tops), (cache, counts)


def data_sequence_params(ctx: Context, x: Any, labels: Any) -> list[ParamSpec]:
    _require_items(x)
    p, n = ctx.param, x.shape[0]
    require(p.cache_size > 0 and p.k >= 0, f"cache_size must be positive and k not negative: {p.cache_size}, {p.k}")
    require(math.prod(labels.shape) == n, f"bottom 1 must have one label for each of {n} items, not {labels.shape}")
    tops = 2 + p.k + p.output_labels
    require(
        ctx.n_tops == tops, f"with k: {p.k} and output_labels: {p.output_labels} it has {tops} tops, not {ctx.n_tops}"
    )
    count = p.label_count if p.label_count > 0 else _LABELS
    shapes: list[Shape] = [(count, p.cache_size, math.prod(x.shape[1:])), (count,)]
    return [ParamSpec(shape, learnable=False, persistent=False) for shape in shapes]


define_layer(
    Signature("DataSequence", bottoms=2, tops=(2, None), param="data_sequence_param", in_place=False),
    Traced(data_sequence, params=data_sequence_params, stateful=True),
    Gradient(no_gradient, overrides_autodiff=True, stops_gradient=True, indices=Indices((1,))),
    docs=LayerDocs(
        origin="MyCaffe",
        unsupported={"shard": "each device would store its items only"},
        restrictions=f"Without label_count: {_LABELS_DOC}, from label_start on. No recorded case.",
    ),
)
