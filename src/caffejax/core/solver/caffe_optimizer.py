"""The update of a solver as an optax transformation: clipping, weight decay, the update rule and limits of weights."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, partial
from itertools import pairwise
from types import SimpleNamespace
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import optax

from ...base.errors import SolverError
from ..ops.compilation import full, zeros_like
from ..ops.implementations import cpu_form
from ..ops.platform_dispatch import PlatformOp
from ..program.net import Net
from ..schema.caffe_pb2 import SolverParameter
from .traced_schedules import traced_schedule
from .update_rules import RULES, compute_momentum

Array = jax.Array
T = TypeVar("T")


class CaffeState(NamedTuple):
    """The state of a `CaffeOptimizer`.

    Attributes:
        count: the number of updates so far, int32.
        history: for each slot of the update rule, a tree with one array for each parameter.
    """

    count: Array  # type: ignore[assignment]
    history: tuple[Any, ...]


class CaffeOptimizer(optax.GradientTransformationExtraArgs):  # type: ignore[misc]
    """The transformation that `caffe_optimizer` returns.

    Attributes:
        rule: the name of the update rule.
        apply: None, or for SGD with momentum a function with the arguments of `update` that returns the new parameters,
            instead of updates, and the new state. On CPUs it makes one pass over memory.
    """

    rule: str
    apply: Callable[..., tuple[Any, CaffeState]] | None


class Multipliers(NamedTuple):
    """A parameter's lr_mult and decay_mult."""

    lr: float
    decay: float


def make_optimizer(param: SolverParameter, net: Net | None) -> CaffeOptimizer:
    """Return the optimizer for a net's parameters, or any, that a solver's valid settings define."""
    if net is None:
        return caffe_optimizer(param, None)
    blobs = net.map_params(lambda p: Multipliers(p.lr_mult, p.decay_mult) if p.spec.learnable else None)
    return caffe_optimizer(param, {(layer, str(key)): m for layer, ms in blobs.items() for key, m in ms.items()})


def find_blobs(tree: Any, table: Mapping[tuple[str, str], T]) -> Iterator[tuple[str, T | None]]:
    """Yield the path of each leaf of a tree as text, and the value of `table` for it, or None.

    The keys of `table` are the names of a layer and of one of its blobs. The path contains these names one after the
    other, so the tree may be any that contains some of a net's parameters, such as the trees of flax and optax.
    """
    for path, _ in jax.tree_util.tree_leaves_with_path(tree):
        names = [jax.tree_util.keystr((key,), simple=True) for key in path]
        values = [table[pair] for pair in pairwise(names) if pair in table]
        yield "/".join(names), values[-1] if values else None  # the innermost: modules may have names of layers


def caffe_optimizer(param: Any, multipliers: Mapping[tuple[str, str], Multipliers] | None) -> CaffeOptimizer:
    """Return the optimizer of a SolverParameter; see `caffejax.optimizer`.

    Args:
        param: a SolverParameter that `check_solver` accepts.
        multipliers: by the names of layer and blob, in Caffe's order, in which norms are summed; None for any arrays,
            whose multipliers are 1.
    """
    p, num_slots = param, RULES[param.type].num_slots
    table = {name: (position, m) for position, (name, m) in enumerate((multipliers or {}).items())}
    needs_params = _has_decay(p) or uses_local_rates(p) or has_weight_limits(p) or p.type == "AdamW"
    schedule = cache(lambda: traced_schedule(p))

    def look_up(tree: Any) -> list[tuple[int, Multipliers]]:
        if multipliers is None:
            return [(position, Multipliers(1, 1)) for position in range(len(jax.tree.leaves(tree)))]
        found = list(find_blobs(tree, table))
        if unknown := [path for path, entry in found if entry is None]:
            raise SolverError(
                f"'{path}' is no param of the net, so the solver has no lr_mult for it; give arrays of other modules "
                "an optimizer of their own, for example with optax.multi_transform"
                for path in unknown
            )
        return [entry for _, entry in found if entry is not None]

    def init(params: Any) -> CaffeState:
        look_up(params)
        history = tuple(jax.tree.map(zeros_like, params) for _ in range(num_slots))
        return CaffeState(full((), 0, jnp.int32), history)

    def run(
        run_blob: Callable[..., tuple[Array, ...]],
        grads: Any,
        state: CaffeState,
        params: Any = None,
        *,
        rate: Any = None,
        iteration: Any = None,
        **extra: Any,
    ) -> tuple[Any, CaffeState]:
        del extra
        if params is None and needs_params:
            raise ValueError("the solver's settings need the parameters: call update(grads, state, params)")
        i = state.count if iteration is None else iteration
        rate = schedule()(i) if rate is None else rate
        diffs: list[Array]
        tree: Any
        found, (diffs, tree) = look_up(grads), jax.tree.flatten(grads)
        order = sorted(range(len(found)), key=lambda n: found[n][0])  # Caffe's; JAX sorts the keys of dictionaries
        blobs: list[Any] = [None] * len(diffs) if params is None else tree.flatten_up_to(params)
        # Caffe clips the sum over the passes; these are their means
        diffs = clip_by_total_norm(diffs, order, p.clip_gradients / p.iter_size)
        rows = zip(diffs, blobs, (m for _, m in found), *map(tree.flatten_up_to, state.history), strict=True)
        results = [run_blob(g, blob, m, rate, i, *slots) for g, blob, m, *slots in rows]
        first, *history = map(list, zip(*results, strict=True)) if results else [[] for _ in range(1 + num_slots)]
        if has_weight_limits(p):
            first = _limit_weights(p, blobs, first, order)
        return tree.unflatten(first), CaffeState(optax.safe_increment(i), tuple(map(tree.unflatten, history)))

    transformation = CaffeOptimizer(init, partial(run, _make_blob_update(p)))
    transformation.rule = p.type
    transformation.apply = partial(run, _make_momentum_step(p)) if _is_momentum_sgd(p) else None
    return transformation


def _make_blob_update(param: Any) -> Callable[..., tuple[Array, ...]]:
    """Return a function `(g, blob, multipliers, rate, iteration, *slots)` that gives `(update, *new_slots)`."""
    p, rule = param, RULES[param.type]
    direction = jnp.sign if p.regularization_type == "L1" else (lambda blob: blob)

    @partial(jax.jit, static_argnums=2)  # traced once for each shape
    def update_blob(g: Array, blob: Any, m: Multipliers, rate: Any, iteration: Any, *slots: Array) -> tuple[Array, ...]:
        momentum = compute_momentum(p, rate, iteration)
        settings = SimpleNamespace(
            momentum=momentum if isinstance(momentum, float) else momentum.astype(g.dtype),
            **{name: getattr(p, name) for name in ("momentum2", "delta", "rms_decay")},
        )
        r = jnp.asarray(rate, g.dtype) * m.lr
        if uses_local_rates(p):
            r = jnp.asarray(_local_rate(p, g, blob, rate, momentum) * (m.lr > 0), g.dtype)
        if _has_decay(p) and m.decay:
            g = g + jnp.asarray(_weight_decay(p, iteration) * m.decay, g.dtype) * direction(blob)
        t = jnp.asarray(iteration, jnp.float32) + 1
        u, *new_slots = rule.update(settings, g, r, t.astype(g.dtype), *slots)
        if p.type == "AdamW":  # of MyCaffe, whose decay is separate from the rule
            u = u + jnp.asarray(rate, blob.dtype) * (m.lr * p.adamw_decay * m.decay) * blob
        return -u, *new_slots

    return update_blob


def _is_momentum_sgd(param: Any) -> bool:
    is_constant = isinstance(compute_momentum(param, 0.0, 0), float) and param.weight_decay_policy != "poly"
    has_l1_decay = param.regularization_type == "L1" and _has_decay(param)
    is_plain = not (uses_local_rates(param) or has_weight_limits(param) or has_l1_decay)
    return bool(param.type == "SGD" and is_constant and is_plain)


def _make_momentum_step(param: Any) -> Callable[..., tuple[Array, ...]]:
    """Return momentum SGD in one pass: on CPUs 0.88 of CaffeNet's training step (batch 8), 0.94 of LeNet's (batch 64).

    The function has the arguments of `_make_blob_update`'s, and gives `(new_blob, new_slot)` instead of an update.
    """
    momentum, weight_decay = param.momentum, param.weight_decay if _has_decay(param) else 0.0

    @partial(jax.jit, static_argnums=2)
    def step(g: Array, blob: Array, m: Multipliers, rate: Any, iteration: Any, h: Array) -> tuple[Array, ...]:
        del iteration
        settings = {"lr_mult": m.lr, "decay": weight_decay * m.decay, "momentum": momentum}
        plain = partial(_momentum_step, **settings)
        run = PlatformOp(plain, cpu_form("momentum_update", _momentum_step, **settings), differentiable=False)
        return run(g, blob, h, jnp.asarray(rate, jnp.float32))

    return step


def _momentum_step(
    g: Array, blob: Array, h: Array, rate: Array, *, lr_mult: float, decay: float, momentum: float
) -> tuple[Array, Array]:
    h = rate.astype(g.dtype) * lr_mult * (g + decay * blob) + momentum * h
    return blob - h, h


def compute_total_norm(arrays: Any) -> Array:
    """Return the L2 norm of all arrays of a tree together, whose squares are summed in the order of its leaves."""
    return jnp.sqrt(sum((jnp.sum(jnp.square(a)) for a in jax.tree.leaves(arrays)), start=jnp.zeros(())))


def clip_by_total_norm(arrays: Sequence[Array], order: Sequence[int], limit: float) -> list[Array]:
    """Return arrays after scaling them to a total L2 norm of at most `limit`, which is computed in the given order.

    A negative limit disables clipping.
    """
    if limit < 0 or not arrays:
        return list(arrays)
    norm = compute_total_norm([arrays[i] for i in order])
    scale = jnp.where(norm > limit, limit / norm, 1)
    return [a * scale.astype(a.dtype) for a in arrays]


def _has_decay(param: Any) -> bool:
    has_decay = param.weight_decay or param.weight_decay_policy == "poly"
    return bool(has_decay) and param.regularization_type != "NONE"


def _weight_decay(param: Any, iteration: Any) -> Any:
    """Return the weight decay: `weight_decay`, which NVIDIA's policy "poly" changes to `max_weight_decay`."""
    decay = param.weight_decay
    if param.weight_decay_policy != "poly":
        return decay
    fraction = (jnp.asarray(iteration, jnp.float32) / param.max_iter) ** param.weight_decay_power
    return decay + (param.max_weight_decay - decay) * fraction


def uses_local_rates(param: Any) -> bool:
    """Return whether a solver's settings ask for a local learning rate for each blob; see `_local_rate`."""
    return bool(param.larc or param.local_lr_auto)


def _local_rate(param: Any, g: Array, blob: Array, rate: Any, momentum: Any) -> Array:
    """Return the learning rate of a blob whose lr_mult is not 0; other values of lr_mult have no effect.

    The setting `larc` of the NVIDIA fork and the setting `local_lr_auto` of the Intel fork request it. Norms are L2
    norms, and the gradient excludes weight decay. The local rate is

    - (1 - momentum) * larc_eta * |blob| / |gradient| for NVIDIA,
    - local_gw_ratio * |blob| / (|gradient| + weight_decay * |blob|) for Intel, and
    - 1 if a norm is 0.

    With NVIDIA's larc_policy "clip", it is an upper limit of the learning rate. Otherwise, it is a factor of it.
    """
    p = param
    factor = (1 - momentum) * p.larc_eta if p.larc else p.local_gw_ratio
    blob_norm, gradient_norm = jnp.linalg.norm(blob.ravel()), jnp.linalg.norm(g.ravel())
    is_nonzero = (blob_norm > 0) & (gradient_norm > 0)
    divisor = jnp.where(is_nonzero, gradient_norm + (0 if p.larc else p.weight_decay) * blob_norm, 1)
    local_rate = jnp.where(is_nonzero, factor * blob_norm / divisor, 1)
    return jnp.minimum(rate, local_rate) if p.larc and p.larc_policy == "clip" else rate * local_rate


def has_weight_limits(param: Any) -> bool:
    """Return whether a solver's settings limit the weights; see `_limit_weights`."""
    return bool(param.clip_weights >= 0 or _has_weight_range(param))


def _has_weight_range(param: Any) -> bool:
    return any(map(param.HasField, ("clamp_weights_lower", "clamp_weights_upper")))


def _limit_weights(param: Any, weights: Sequence[Array], updates: Sequence[Array], order: Sequence[int]) -> list[Array]:
    """Return updates after which the weights are limited, as in the fork caffe-windows.

    All weights are first scaled to a total L2 norm of at most `clip_weights`, and then clipped to the range from
    `clamp_weights_lower` to `clamp_weights_upper`.
    """
    limited = clip_by_total_norm([w + u for w, u in zip(weights, updates, strict=True)], order, param.clip_weights)
    if _has_weight_range(param):
        limited = [jnp.clip(w, param.clamp_weights_lower, param.clamp_weights_upper) for w in limited]
    return [new - w for new, w in zip(limited, weights, strict=True)]
