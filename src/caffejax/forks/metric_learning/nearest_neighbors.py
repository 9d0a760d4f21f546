"""Layers of MyCaffe that store encodings of examples by label (Decode, Knn, DataSequence), and accuracy layers."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from ...base.errors import require
from ...core.layers.context import Context, Params, ParamSpec, Phase, Shape
from ...core.layers.declaration import register
from ...core.layers.dtype_policy import promote
from ...core.layers.loss_helpers import in_valid_rows
from ...core.layers.types import Indices
from ...core.ops.vma import vary_as
from ...core.schema.caffe_pb2 import AccuracyParameter, DataSequenceParameter, DecodeParameter, KnnParameter
from ..general.settings_checks import reject_fields

Arrays = tuple[jax.Array, ...]

_DEFAULT_NUM_LABELS = 10
_LABELS_DOC = f"MyCaffe's tables grow with the number of labels; here labels are 0 to {_DEFAULT_NUM_LABELS - 1}"


@register(
    "Decode",
    bottoms=(1, 2),
    tops=(1, 2),
    param="decode_param",
    in_place=False,
    stateful=True,
    stops_gradient=True,
    indices=Indices((1,)),
    blob_names=("centroids", "is_complete", "counts", "encodings"),
    origin="MyCaffe",
    unsupported=dict.fromkeys(("shard", "joint_batch"), "items update the centroids one after the other"),
    restrictions=f"{_LABELS_DOC}, or fewer than pregen_label_count if it is set. The first encoding of a label "
    "counts as much as the others. Not supported: target PREGEN. No recorded case.",
)
def decode(
    p: DecodeParameter, x: jax.Array, *labels: jax.Array, state: Params, num_tops: int, phase: Phase
) -> tuple[Any, Arrays]:
    """Compute the squared distance of each encoding to the centroid of each label.

    Bottoms: encodings (N, ...) and, in training, labels (N, ...), where only the first label of an item is used. The
    top is (N, labels, 1, 1). A second top contains the centroids; it is 0 until every label has N * `cache_size`
    encodings. Items are processed in their order. In TRAIN, the centroid of a label is the mean of its encodings, and a
    running mean after N * `cache_size` encodings, unless `enable_centroid_update` is false. With `target: KNN`, the
    distance is the mean of the `k` smallest distances to the label's last N * `cache_size` encodings. Ignored labels
    have the largest possible distance. No gradient passes.

    Blobs: centroids (labels, D, 1, 1); whether each centroid is complete, and the number of encodings of each label,
    (labels, 1, 1, 1) each; and with KNN the encodings (labels, N * cache_size, D, 1).
    """
    x = lax.stop_gradient(promote(x).reshape(x.shape[0], -1))
    capacity = x.shape[0] * p.cache_size
    blobs = tuple(state.values())
    stored_blobs = tuple(
        b.reshape(b.shape[0], *((-1,) if i == 0 else b.shape[1:3] if i == 3 else ())) for i, b in enumerate(blobs)
    )
    is_ignored = jnp.isin(
        jnp.arange(stored_blobs[0].shape[0]), jnp.asarray([*p.ignore_label, *p.ignore_labels], jnp.int32)
    )
    updates_centroids = phase == "TRAIN" and bool(labels) and p.enable_centroid_update

    def update(stored_blobs: Arrays, example: tuple[jax.Array, jax.Array]) -> Arrays:
        centroids, is_complete, counts, *cache = stored_blobs
        item, label = example
        cache = [c.at[label, counts[label].astype(jnp.int32) % capacity].set(item) for c in cache]
        centroids, counts = _add_to_mean(centroids, counts, item, label, capacity)
        return centroids, jnp.where((counts >= capacity) & ~is_ignored, 1.0, is_complete), counts, *cache

    def step(stored_blobs: Arrays, example: tuple[jax.Array, jax.Array]) -> tuple[Arrays, jax.Array]:
        stored_blobs = update(stored_blobs, example) if updates_centroids else stored_blobs
        return stored_blobs, _compute_distances(p, stored_blobs, example[0])

    item_labels = (
        labels[0].reshape(x.shape[0], -1)[:, 0].astype(jnp.int32) if labels else jnp.zeros(x.shape[0], jnp.int32)
    )
    flat_blobs = tuple(b.reshape(b.shape[0]) if i in (1, 2) else b for i, b in enumerate(stored_blobs))
    flat_blobs, distances = lax.scan(step, tuple(vary_as(f, x, item_labels) for f in flat_blobs), (x, item_labels))
    top = jnp.where(is_ignored, jnp.finfo(jnp.float32).max, distances)[:, :, None, None]
    new_blobs = tuple(f.reshape(b.shape).astype(b.dtype) for f, b in zip(flat_blobs, blobs, strict=True))
    if num_tops == 1:
        return top, new_blobs
    is_all_complete = jnp.all((new_blobs[1].ravel() > 0) | is_ignored)
    return (top, jnp.where(is_all_complete, new_blobs[0], 0)), new_blobs


def _add_to_mean(
    means: jax.Array, counts: jax.Array, item: jax.Array, label: jax.Array, capacity: int
) -> tuple[jax.Array, jax.Array]:
    """Return the mean encoding and the number of encodings of each label, after adding an item (D,) to its label.

    After `capacity` encodings, the mean is a running mean in which each item has the weight 1 / capacity.

    Args:
        means: (labels, D).
        counts: (labels,).
        item: the encoding, (D,).
        label: the label of the item.
        capacity: the number of encodings after which the mean is a running mean.
    """
    weight = 1 / jnp.minimum(counts[label] + 1, capacity)
    mean = weight * item + (1 - weight) * means[label]
    return means.at[label].set(mean), counts.at[label].add(1)


def _compute_distances(p: Any, stored_blobs: Arrays, item: jax.Array) -> jax.Array:
    """Return the squared distance of an encoding (D,) to each label, (labels,).

    With `target: KNN`, it is the mean of the `k` smallest squared distances to the label's stored encodings.
    """
    centroids, _, counts, *cache = stored_blobs
    if not cache:
        return jnp.sum(jnp.square(item - centroids), axis=1)
    squared_distances = jnp.sum(jnp.square(item - cache[0]), axis=2)
    valid = jnp.arange(squared_distances.shape[1]) < counts[:, None]
    return jax.vmap(lambda d, m: _mean_of_smallest(d, m, p.k))(squared_distances, valid)


def _mean_of_smallest(x: jax.Array, valid: jax.Array, k: int) -> jax.Array:
    """Return the mean of the k smallest valid entries of x, (n,), or 0 if no entry is valid.

    If k is 0 or negative, it is the mean of all valid entries.
    """
    smallest_values = jnp.sort(jnp.where(valid, x, jnp.inf))[: k if k > 0 else None]
    selected = jnp.isfinite(smallest_values)
    return jnp.sum(jnp.where(selected, smallest_values, 0)) / jnp.maximum(jnp.sum(selected), 1)


def _require_items(x: Any) -> None:
    require(bool(x.shape), "bottom 0 must have items along its first axis, but is a scalar")


def _label_count(param: Any) -> int:
    """Return the number of labels for which a layer with this DecodeParameter stores encodings or centroids."""
    return int(param.pregen_label_count) if param.pregen_label_count > 0 else _DEFAULT_NUM_LABELS


@decode.params
def decode_params(p: DecodeParameter, x: Any, *labels: Any) -> list[ParamSpec]:
    _require_items(x)
    require(p.target != p.PREGEN, "target PREGEN, which samples random targets, is not supported")
    require(p.cache_size > 0, f"cache_size must be positive, not {p.cache_size}")
    for label_bottom in labels:
        require(
            label_bottom.shape[:1] == x.shape[:1],
            f"bottom 1 must have a label for each of {x.shape[0]} items, not shape {label_bottom.shape}",
        )
    num_labels = _label_count(p)
    num_features = math.prod(x.shape[1:])
    shapes = [(num_labels, num_features, 1, 1), (num_labels, 1, 1, 1), (num_labels, 1, 1, 1)]
    shapes += [(num_labels, x.shape[0] * p.cache_size, num_features, 1)] if p.target == p.KNN else []
    names = ("centroids", "is_complete", "counts", "encodings")[: len(shapes)]
    return [ParamSpec(shape, learnable=False, name=name) for name, shape in zip(names, shapes, strict=True)]


@register(
    "AccuracyDecode",
    bottoms=2,
    param="accuracy_param",
    fork_settings=("ignore_labels",),
    differentiable=False,
    indices=Indices((1,)),
    counts_rows=True,
    origin="MyCaffe",
)
def accuracy_decode(p: AccuracyParameter, distances: jax.Array, labels: jax.Array, *, ctx: Context) -> jax.Array:
    """Compute the fraction of items whose label has the smallest distance, as a scalar.

    Bottoms: distances (N, labels) and labels (N, ...), where only the first label of an item is used. Items with a
    label in `ignore_label` or `ignore_labels` are not counted.
    """
    n = distances.shape[0]
    reject_fields(p, ("top_k", "axis"), "only the nearest label counts; remove it")
    require(labels.shape[:1] == (n,), f"bottom 1 must have a label for each of the {n} items, not shape {labels.shape}")
    label = labels.reshape(n, -1)[:, 0].astype(jnp.int32)
    ignored_labels = [*p.ignore_labels, *([p.ignore_label] if p.HasField("ignore_label") else [])]
    is_counted = in_valid_rows(ctx, ~jnp.isin(label, jnp.asarray(ignored_labels, jnp.int32)))
    is_correct = (jnp.argmin(distances.reshape(n, -1), axis=1) == label) & is_counted
    return jnp.sum(is_correct, dtype=jnp.float32) / jnp.sum(is_counted)


@register(
    "AccuracyEncoding",
    bottoms=2,
    param="accuracy_param",
    further_params=("decode_param",),
    in_place=False,
    stateful=True,
    differentiable=False,
    indices=Indices((1,)),
    origin="MyCaffe",
    unsupported=dict.fromkeys(("shard", "joint_batch"), "items update the centroids one after the other"),
    restrictions=f"{_LABELS_DOC}, or fewer than decode_param.pregen_label_count if it is set, and the centroids "
    "do not start again when a new label appears. The first encoding of a label counts as much as the others. It "
    "takes no rows of padding, because the running mean depends on the batch size. No recorded case.",
)
def accuracy_encoding(x: jax.Array, labels: jax.Array, *, state: Params, ctx: Context) -> tuple[jax.Array, Arrays]:
    """Compute the fraction of encodings that are nearest to the centroid of their label, as a scalar.

    Bottoms: encodings (N, D) and labels of pairs (N, 2), where only the first label of an item is used. Items are
    processed in their order, in TRAIN and TEST alike: an encoding changes its label's centroid, and is then compared
    with the centroids of all labels that have encodings. The centroid of a label is the mean of its encodings, and a
    running mean after N * `decode_param.cache_size` encodings. The centroids continue with the next batch, and with the
    next test.
    """
    capacity = x.shape[0] * ctx.layer.decode_param.cache_size
    items = promote(x).reshape(x.shape[0], -1)
    item_labels = labels.reshape(x.shape[0], -1)[:, 0].astype(jnp.int32)

    def step(stored_blobs: Arrays, example: tuple[jax.Array, jax.Array]) -> tuple[Arrays, jax.Array]:
        (centroids, counts), (item, label) = stored_blobs, example
        centroids, counts = _add_to_mean(centroids, counts, item, label, capacity)
        squared_distances = jnp.where(counts > 0, jnp.sum(jnp.square(item - centroids), axis=1), jnp.inf)
        return (centroids, counts), jnp.argmin(squared_distances) == label

    stored_blobs, is_nearest = lax.scan(
        step, tuple(vary_as(b, items, item_labels) for b in state.values()), (items, item_labels)
    )
    return jnp.mean(is_nearest, dtype=jnp.float32), stored_blobs


@accuracy_encoding.params
def accuracy_encoding_params(p: AccuracyParameter, x: Any, labels: Any, *, ctx: Context) -> list[ParamSpec]:
    _require_items(x)
    decode, n = ctx.layer.decode_param, x.shape[0]
    reject_fields(p, ("top_k", "axis", "ignore_label"), "only the nearest label counts, and all labels; remove it")
    unused_fields = ("target", "k", "enable_centroid_update", "ignore_label", "ignore_labels")
    reject_fields(decode, unused_fields, "of decode_param, it uses cache_size and pregen_label_count; remove it")
    require(
        n > 0 and labels.shape[:1] == (n,) and math.prod(labels.shape) == 2 * n,
        f"bottom 1 must have two labels for each of the {n} items, as Data with images_per_blob: 2 and "
        f"output_all_labels: true has, not shape {labels.shape}",
    )
    require(decode.cache_size > 0, f"decode_param.cache_size must be positive, not {decode.cache_size}")
    num_labels = _label_count(decode)
    shapes: dict[str, Shape] = {"centroids": (num_labels, math.prod(x.shape[1:])), "counts": (num_labels,)}
    return [ParamSpec(shape, learnable=False, persistent=False, name=name) for name, shape in shapes.items()]


@register(
    "Knn",
    bottoms=(1, 2),
    param="knn_param",
    in_place=False,
    stateful=True,
    stops_gradient=True,
    indices=Indices((1,)),
    blob_names=("count", "encodings", "labels"),
    origin="MyCaffe",
    unsupported={
        "shard": "each device would store only its own items",
        "symbolic_batch": "the stored batches have the batch size of the net",
    },
    restrictions="Each item is compared with each stored item; MyCaffe reads the first of a batch. Nets for "
    "training and testing need the same batch size. No recorded case.",
)
def knn(p: KnnParameter, x: jax.Array, *labels: jax.Array, state: Params, phase: Phase) -> tuple[jax.Array, Arrays]:
    """Score each label by the distance of its nearest examples in the last batches. The top is (N, num_output, 1, 1).

    Bottoms: encodings (N, ...) and labels (N, ...). In TRAIN, the batch is stored and replaces the oldest of
    `max_stored_batches` batches, and the top is 0. In TEST, the distance to a label is the mean of the `k` smallest
    distances to its stored examples. The score falls from 1 for the nearest label to 0 for the farthest label, and is 0
    for labels without examples. No gradient passes.
    """
    count, stored_batches, stored_labels = state.values()
    n = x.shape[0]
    x = lax.stop_gradient(promote(x).reshape(n, -1))
    top = jnp.zeros((n, p.num_output, 1, 1), x.dtype)
    if phase == "TRAIN":
        slot = count.astype(jnp.int32)[0] % stored_batches.shape[0]
        batch_labels = labels[0].reshape(n, -1)[:, 0].astype(stored_labels.dtype)
        return top, (
            count + 1,
            stored_batches.at[slot].set(x.astype(stored_batches.dtype)),
            stored_labels.at[slot].set(batch_labels),
        )
    valid = jnp.repeat(jnp.arange(stored_batches.shape[0]) < count, n)
    examples, example_labels = stored_batches.reshape(-1, x.shape[1]), stored_labels.ravel().astype(jnp.int32)
    has_label = valid & (example_labels == jnp.arange(p.num_output)[:, None])
    has_examples = jnp.any(has_label, axis=1)

    def score_labels(item: jax.Array) -> jax.Array:
        distance = jnp.linalg.norm(examples - item, axis=1)
        means = jax.vmap(lambda m: _mean_of_smallest(distance, m, p.k))(has_label)
        smallest_mean, largest_mean = (
            f(means, where=has_examples, initial=i) for f, i in ((jnp.min, jnp.inf), (jnp.max, -jnp.inf))
        )
        return jnp.where(
            has_examples,
            1 - (means - smallest_mean) / jnp.where(largest_mean > smallest_mean, largest_mean - smallest_mean, 1),
            0,
        )

    return lax.map(score_labels, x)[:, :, None, None].astype(top.dtype), tuple(state.values())


@knn.params
def knn_params(p: KnnParameter, x: Any, *labels: Any, phase: Phase) -> list[ParamSpec]:
    _require_items(x)
    n = x.shape[0]
    require(
        p.num_output > 0 and p.max_stored_batches > 0,
        f"num_output {p.num_output} and max_stored_batches {p.max_stored_batches} must be positive",
    )
    require(bool(labels) or phase == "TEST", "training needs the labels as bottom 1")
    shapes: dict[str, Shape] = {
        "count": (1,),
        "encodings": (p.max_stored_batches, n, math.prod(x.shape[1:])),
        "labels": (p.max_stored_batches, n),
    }
    return [ParamSpec(shape, learnable=False, name=name) for name, shape in shapes.items()]


@register(
    "DataSequence",
    bottoms=2,
    tops=(2, None),
    param="data_sequence_param",
    in_place=False,
    stateful=True,
    stops_gradient=True,
    indices=Indices((1,)),
    origin="MyCaffe",
    unsupported={"shard": "each device would store only its own items"},
    restrictions=f"Without label_count: {_LABELS_DOC}, from label_start on. No recorded case.",
)
def data_sequence(
    p: DataSequenceParameter, x: jax.Array, labels: jax.Array, *, state: Params, key: jax.Array
) -> tuple[Arrays, Arrays]:
    """Form tuples of examples: each example, a stored one with the same label, and `k` stored ones with other labels.

    Bottoms: examples (N, ...) and labels (N,). Tops: 2 + k tops like bottom 0 and, with `output_labels`, the labels of
    the tuples (N, 2 + k, 1, 1). Each batch is first stored. The store contains the last `cache_size` examples of each
    of `label_count` labels, starting from `label_start`. With k = 0 and `balance_matches`, the second example has the
    item's label for items of even index, and a different label for items of odd index. Stored examples are sampled at
    random. No gradient passes.
    """
    n = x.shape[0]
    cache, counts = state.values()
    rows, label_index = x.reshape(n, -1), labels.reshape(n).astype(jnp.int32) - p.label_start

    def store(
        stored: tuple[jax.Array, jax.Array], example: tuple[jax.Array, jax.Array]
    ) -> tuple[tuple[jax.Array, jax.Array], None]:
        (cache, counts), (row, label) = stored, example
        slot = counts[label].astype(jnp.int32) % cache.shape[1]
        return (cache.at[label, slot].set(row.astype(cache.dtype)), counts.at[label].add(1)), None

    start = vary_as(cache, rows, label_index), vary_as(counts, rows, label_index)
    (cache, counts), _ = lax.scan(store, start, (rows, label_index))
    is_same_label = label_index[:, None] == jnp.arange(len(counts))
    num_stored = jnp.minimum(counts, cache.shape[1])
    tops, tuple_labels = [x], [label_index]
    for i in range(1 + p.k):
        label_key, slot_key = jax.random.split(jax.random.fold_in(key, i))
        needs_same_label = (jnp.arange(n) % 2 == 0 if p.balance_matches and p.k == 0 else jnp.ones(n, bool)) & (i == 0)
        is_allowed = jnp.where(needs_same_label[:, None], is_same_label, ~is_same_label) & (num_stored > 0)
        is_allowed = jnp.where(jnp.any(is_allowed, axis=1, keepdims=True), is_allowed, is_same_label)
        label = jax.random.categorical(label_key, jnp.where(is_allowed, 0.0, -jnp.inf), axis=1)
        slot = jnp.floor(jax.random.uniform(slot_key, (n,)) * num_stored[label]).astype(jnp.int32)
        tops.append(cache[label, slot].reshape(x.shape).astype(x.dtype))
        tuple_labels.append(label)
    if p.output_labels:
        tops.append((jnp.stack(tuple_labels, axis=1) + p.label_start).astype(x.dtype)[:, :, None, None])
    return tuple(lax.stop_gradient(t) for t in tops), (cache, counts)


@data_sequence.params
def data_sequence_params(p: DataSequenceParameter, x: Any, labels: Any, *, num_tops: int) -> list[ParamSpec]:
    _require_items(x)
    n = x.shape[0]
    require(
        p.cache_size > 0 and p.k >= 0, f"cache_size {p.cache_size} must be positive, and k {p.k} must not be negative"
    )
    require(math.prod(labels.shape) == n, f"bottom 1 must have one label for each of {n} items, not {labels.shape}")
    expected = 2 + p.k + p.output_labels
    require(
        num_tops == expected,
        f"with k: {p.k} and output_labels: {p.output_labels} the layer has {expected} tops, not {num_tops}",
    )
    num_labels = p.label_count if p.label_count > 0 else _DEFAULT_NUM_LABELS
    shapes: dict[str, Shape] = {"rows": (num_labels, p.cache_size, math.prod(x.shape[1:])), "counts": (num_labels,)}
    return [ParamSpec(shape, learnable=False, persistent=False, name=name) for name, shape in shapes.items()]
