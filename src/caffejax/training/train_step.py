"""`TrainState`, and the pure functions that build a training step."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh

from ..kernels.update_barrier import updated_apart
from ..kernels.vma import vary_as
from ..layers.context import name_key
from ..layers.dtypes import to_float32
from ..net import Blobs, Net, Params, Variables
from ..net.net import average_statistics
from ..options import Parallel
from ..parallel import data_parallel

# Elements of the largest params that are updated after a barrier behind the backward pass, so that all gradients are
# added up together. The gradients stored for that are small compared with float32 activations, not with bfloat16 ones.
_MOST_APART = {"float32": math.inf, "tf32": math.inf, "bfloat16": 2**13}


@flax.struct.dataclass
class TrainState:
    """The arrays that a training step reads and changes.

    Attributes:
        params: learnable params, `{layer: {index: array}}`.
        state: running statistics, `{layer: {index: array}}`.
        opt_state: the optimizer's state.
        iteration: the number of updates so far, int32.
        key: the random key of training; see `iteration_key`.
    """

    params: Params
    state: Params
    opt_state: Any
    iteration: jax.Array
    key: jax.Array

    @property
    def variables(self) -> Variables:
        """The params and the running statistics."""
        return Variables(self.params, self.state)


class StepResult(NamedTuple):
    """The result of a training step.

    Attributes:
        loss: the mean loss of the passes; for several steps in one dispatch, the loss of each step.
        outputs: the output blobs of the last pass.
        update: the arrays that the last step subtracted from the params, or None if they are not kept.
        requests: the sum of all processes' encoded requests, or None for one process; see `parallel.Requests`.
    """

    loss: jax.Array
    outputs: Blobs
    update: Params | None = None
    requests: jax.Array | None = None


class Updater(Protocol):
    """Applies updates to a train state, and owns the state.

    Attributes:
        train_state: the state on one device; see `TrainState`.
        last_update: the array subtracted from each parameter by the last update, if the updater keeps it.
    """

    train_state: TrainState
    last_update: Params | None

    @property
    def waited(self) -> float:
        """Seconds for which the devices have waited for data; 0 if not measured."""

    @property
    def variables(self) -> Variables:
        """The parameters and running statistics of `train_state`."""

    @property
    def abstract_state(self) -> TrainState:
        """The shapes of `train_state`, with the shardings that a checkpoint is restored with."""

    @property
    def sharded_state(self) -> tuple[TrainState, Params | None]:
        """The state with sharded arrays, and the running statistics of each of several devices."""

    def restore(self, state: TrainState, device_statistics: Params | None) -> None:
        """Continue from a state of the form `abstract_state` and the running statistics of each device, or None."""

    @property
    def steps_per_dispatch(self) -> int:
        """The number of updates that one call of `update` makes where nothing is due between them."""

    def update(
        self, iteration: int, rates: Sequence[np.float32], *, debug_info: bool, requests: jax.Array | None
    ) -> StepResult:
        """Make an update with each rate, beginning at `iteration`; log debug info if `debug_info`.

        `requests` holds the requests of all processes, if there are several; the result has their sum.
        """

    def final_loss(self) -> jax.Array:
        """Run forward once more, on the next batch; return the loss."""


def iteration_key(ts: TrainState) -> jax.Array:
    """Return the key of the next iteration."""
    return jax.random.fold_in(ts.key, ts.iteration)


def pass_key(ts: TrainState, number: Any) -> jax.Array:
    """Return the key of one of an iteration's passes."""
    return jax.random.fold_in(iteration_key(ts), number)


def train_key(key: jax.Array) -> jax.Array:
    """Return the random key of training, derived from the solver's key."""
    return name_key(key, "train")


def init_train_state(
    variables: Variables, optimizer: optax.GradientTransformationExtraArgs, key: jax.Array
) -> TrainState:
    """Return the initial train state."""
    return TrainState(
        params=variables.params,
        state=variables.state,
        opt_state=optimizer.init(variables.params),
        iteration=jnp.int32(0),
        key=train_key(key),
    )


def abstract_state(state: TrainState) -> TrainState:
    """Return the shapes of a state's arrays, with shardings; the key is replaced by its data."""
    with_data = state.replace(key=jax.random.key_data(state.key))  # type: ignore[attr-defined]
    shapes: TrainState = jax.tree.map(
        lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=getattr(x, "sharding", None)), with_data
    )
    return shapes


Passes = Callable[..., tuple[Params, Params, jax.Array, Blobs]]
Step = Callable[..., tuple[TrainState, StepResult]]
Update = Callable[[Params, TrainState, Any], tuple[TrainState, Params | None]]


def make_update(
    optimizer: optax.GradientTransformationExtraArgs, *, keep_update: bool, most_apart: float = math.inf
) -> Update:
    """Make the second half of a step, a pure function `update(grads, train_state, rate)`.

    It returns the new state and, with `keep_update`, the arrays that it subtracted from the params, otherwise None.

    Args:
        optimizer: the update rule. It takes gradients that are sums over an iteration's passes; some may be bfloat16.
        keep_update: whether to return the subtracted arrays.
        most_apart: the largest number of elements of params that are updated after a barrier.
    """

    @jax.jit
    def update(grads: Params, ts: TrainState, rate: Any) -> tuple[TrainState, Params | None]:
        params, grads = updated_apart(ts.params, grads, most_apart)
        grads = jax.tree.map(to_float32, grads)  # XLA fuses this with the update
        updates, opt_state = optimizer.update(grads, ts.opt_state, params, rate=rate, iteration=ts.iteration)
        subtracted = jax.tree.map(lambda u: 0 - u, updates) if keep_update else None
        new: TrainState = ts.replace(  # type: ignore[attr-defined]
            params=optax.apply_updates(params, updates), opt_state=opt_state, iteration=ts.iteration + 1
        )
        return new, subtracted

    return update


def make_passes(net: Net, iter_size: int) -> Passes:
    """Make the passes of an iteration: `passes(params, state, batches, key)` to gradients, state, loss and outputs.

    Gradients are sums over the passes, the loss is their mean, and outputs are the last one's. `batches` is what
    `stack` makes of `iter_size` batches.
    """

    grad = jax.value_and_grad(net.loss, has_aux=True)

    def passes(
        params: Params, state: Params, batches: Mapping[str, jax.Array], key: jax.Array
    ) -> tuple[Params, Params, jax.Array, Blobs]:
        state = average_statistics(net, state)

        def one(carry: tuple[Any, Params], numbered: Any) -> tuple[tuple[Any, Params], Any]:
            total, before = carry
            number, batch = numbered
            (loss, aux), grads = grad(params, before, batch, jax.random.fold_in(key, number))
            after = jax.tree.map(vary_as, aux.state, before)
            return (jax.tree.map(jnp.add, total, grads), after), (loss, aux.blobs)

        start = (jax.tree.map(lambda p: vary_as(jnp.zeros_like(p), p), params), state)
        # a single pass needs no loop, and host layers cannot be in a compiled loop
        if iter_size > 1 and not net.has_host_layers and not has_varying_shapes(batches):
            (grads, state), (losses, every) = jax.lax.scan(one, start, (jnp.arange(iter_size), dict(batches)))
            outputs = jax.tree.map(lambda o: o[-1], every)
        else:
            (grads, state), losses, outputs = _loop(one, start, batches, iter_size)
        return grads, state, jnp.mean(losses), outputs

    return passes


def make_forward(net: Net) -> Passes:
    """Make a function as `make_passes` does that runs one forward pass; its gradients are empty."""

    def forward(
        params: Params, state: Params, batches: Mapping[str, jax.Array], key: jax.Array
    ) -> tuple[Params, Params, jax.Array, Blobs]:
        loss, outputs = net.loss(params, state, {name: array[0] for name, array in batches.items()}, key)
        return {}, outputs.state, loss, outputs.blobs

    return forward


def make_step(
    net: Net,
    optimizer: optax.GradientTransformationExtraArgs,
    iter_size: int,
    *,
    keep_update: bool = False,
    mesh: Mesh | None = None,
    parallel: Parallel = Parallel(),
) -> Step:
    """Make a training step, a pure function `step(train_state, batches, rate, requests=None)`.

    `batches` is the result of `stack` for `iter_size` batches; on a mesh, of `parallel.join_batches`. On a mesh, the
    state and outputs have the form of `parallel.data_parallel`, and `requests`, one number for each device, is added up
    over devices together with the gradients.

    Args:
        net: the train net.
        optimizer: the update rule.
        iter_size: the number of passes.
        keep_update: whether the result contains the arrays that were subtracted from the params.
        mesh: the devices, or None for one device.
        parallel: the settings of training on several devices.

    Raises:
        GraphError: if a layer without a backward pass would need one.
    """
    net.graph.check_backward()
    passes: Callable[..., Any] = _with_requests(make_passes(net, iter_size))
    if mesh is not None:
        narrow = net.run.precision == "bfloat16" and parallel.reduce_dtype == "auto"
        passes = data_parallel(passes, mesh, in_bfloat16=narrow)
    update = make_update(optimizer, keep_update=keep_update, most_apart=_MOST_APART[net.run.precision])

    def step(
        ts: TrainState, batches: Mapping[str, jax.Array], rate: Any, requests: jax.Array | None = None
    ) -> tuple[TrainState, StepResult]:
        total: jax.Array | None
        ts = ts.replace(params=net.rewritten(ts.params))  # type: ignore[attr-defined]
        (grads, total), state, loss, outputs = passes(ts.params, ts.state, (batches, requests), iteration_key(ts))
        new, subtracted = update(grads, ts, rate)
        return new.replace(state=state), StepResult(loss, outputs, subtracted, total)  # type: ignore[attr-defined]

    return step


def _with_requests(passes: Passes) -> Callable[..., Any]:
    """Return passes that take `(batches, requests)` and return `(grads, sum of requests)` instead of the gradients.

    The same collective then adds up gradients and requests over devices.
    """

    def with_requests(params: Params, state: Params, inputs: Any, key: jax.Array) -> Any:
        batches, requests = inputs
        grads, state, loss, outputs = passes(params, state, batches, key)
        return (grads, None if requests is None else jnp.sum(requests)), state, loss, outputs

    return with_requests


def make_steps(step: Step) -> Step:
    """Make a function of several steps, for small nets, where dispatching a step takes as long as the step.

    Batches, rates and the result's loss have a new first axis of the steps; other results are the last step's.
    """

    def steps(
        ts: TrainState, batches: Mapping[str, jax.Array], rates: Any, requests: jax.Array | None = None
    ) -> tuple[TrainState, StepResult]:
        def one(carry: tuple[TrainState, Any], inputs: Any) -> tuple[tuple[TrainState, Any], jax.Array]:
            new, result = step(carry[0], *inputs, requests)
            return (new, result[1:]), result.loss

        first = jax.tree.map(lambda a: a[0], (dict(batches), rates))
        last = jax.tree.map(lambda a: jnp.zeros(a.shape, a.dtype), jax.eval_shape(step, ts, *first, requests)[1][1:])
        (new, last), losses = jax.lax.scan(one, (ts, last), (dict(batches), rates))
        return new, StepResult(losses, *last)

    return steps


def _loop(body: Callable[..., Any], carry: Any, batches: Mapping[str, Any], n: int) -> tuple[Any, jax.Array, Blobs]:
    """Run an unrolled `jax.lax.scan` of n >= 1 steps; only the last outputs are kept, since shapes may change."""
    losses = []
    for i in range(n):
        carry, (loss, outputs) = body(carry, (jnp.int32(i), {name: array[i] for name, array in batches.items()}))
        losses.append(loss)
    return carry, jnp.stack(losses), outputs


def has_varying_shapes(batches: Mapping[str, Any]) -> bool:
    """Return whether the batches of one iteration differ in their shapes."""
    return any(isinstance(arrays, list) for arrays in batches.values())


def stack(batches: Sequence[Mapping[str, np.ndarray]]) -> dict[str, Any]:
    """Stack the batches of one iteration along a new first axis; blobs are lists if the batches' shapes differ."""
    if len(batches) == 1:  # a view, without a copy
        return {name: array[None] for name, array in batches[0].items()}
    if any(np.shape(array) != np.shape(batches[0][name]) for b in batches[1:] for name, array in b.items()):
        return {name: [b[name] for b in batches] for name in batches[0]}
    return {name: np.stack([b[name] for b in batches]) for name in batches[0]}
