"""`TrainState`, and functions that build a training step, which is a pure function."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh

from ...base.config import Kernels, Parallel
from ...base.variables import Blobs, Params, Variables
from ..layers.context import fold_in_name
from ..layers.dtype_policy import to_float32
from ..layers.row_padding import PaddedRows, stack_padded
from ..ops.compilation import full
from ..ops.layout import materialise
from ..ops.platform_dispatch import PlatformOp
from ..ops.vma import vary_as, varying_axes
from ..parallel.data_parallel import data_parallel
from ..program.net import Net
from .caffe_optimizer import CaffeOptimizer, compute_total_norm

Arrays = tuple[jax.Array, ...]


def separate_updates(params: Any, grads: Any, max_size: float = math.inf) -> tuple[Any, Any]:
    """Return `(params, grads)` with the same values, with barriers that separate updates from the backward pass.

    A barrier keeps XLA from fusing operations before it with operations after it. Without a barrier, XLA fuses the
    update of a weight with the transposition of this weight for a convolution of the backward pass, because both read
    the weight. On several devices, this convolution and the backward pass of all earlier layers then wait until the
    weight's gradient has been summed over the devices, and XLA cannot sum several gradients together. The TPU compiler
    does not fuse updates in this way. On TPUs, barriers for all parameters or for no parameters take less memory.

    Args:
        params, grads: the parameters and their gradients, `{layer: {name: array}}`.
        max_size: parameters with at most this number of elements get a barrier.
    """
    leaves: list[jax.Array]
    tree: Any
    leaves, tree = jax.tree.flatten(params)
    selected_indices = [i for i, leaf in enumerate(leaves) if leaf.size <= max_size]
    diffs = [_match_axis_order(diff) for diff in tree.flatten_up_to(grads)]
    if not selected_indices:
        return params, tree.unflatten(diffs)
    tpu_barriers = _pair_barriers if math.isinf(max_size) else _identity
    run = PlatformOp(_identity, _identity, tpu=tpu_barriers, partitioned=_pair_barriers)
    results = run(*(leaves[i] for i in selected_indices), *(diffs[i] for i in selected_indices))
    for i, param, diff in zip(selected_indices, results, results[len(selected_indices) :], strict=False):
        leaves[i], diffs[i] = param, diff
    return tree.unflatten(leaves), tree.unflatten(diffs)


def _identity(*arrays: jax.Array) -> Arrays:
    return arrays


def _pair_barriers(*arrays: jax.Array) -> Arrays:
    half = len(arrays) // 2
    pairs = [jax.lax.optimization_barrier(pair) for pair in zip(arrays[:half], arrays[half:], strict=True)]
    return tuple(p for p, _ in pairs) + tuple(g for _, g in pairs)


def _match_axis_order(diff: jax.Array) -> jax.Array:
    """Return a weight's gradient. On GPUs, the result has the weight's memory layout, in the order of the axes.

    Without this, the gradient has the layout in which a convolution returns it, and XLA converts the weight and the
    history of the update rule to that layout and back.
    """
    return PlatformOp(_identity, _identity, gpu=_materialise)(diff)[0] if diff.ndim > 2 else diff


def _materialise(diff: jax.Array) -> Arrays:
    return (materialise(diff),)


# Parameters with at most this number of elements are updated after a barrier that follows the backward pass, so that
# XLA can sum all gradients over devices together. The barrier keeps gradients in memory, which is little compared to
# float32 activations, but not compared to bfloat16 activations.
_MAX_BARRIER_SIZE = {"float32": math.inf, "tf32": math.inf, "bfloat16": 2**13}


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class TrainState:
    """The arrays that a training step takes and returns.

    Attributes:
        params: the learned parameters, `{layer: {name: array}}`.
        state: the running statistics and the state of recurrent layers, `{layer: {name: array}}`.
        opt_state: the optimizer's state, which contains the history of the update rule.
        iteration: the number of updates so far, int32.
        key: the random key of training; see `iteration_key`.
        rule: the name of the update rule, "optax" for any other transformation, or "" if it is unknown.
    """

    params: Params
    state: Params
    opt_state: Any
    iteration: jax.Array
    key: jax.Array
    rule: str = dataclasses.field(default="", metadata={"static": True})

    @property
    def variables(self) -> Variables:
        """The parameters and running statistics."""
        return Variables(self.params, self.state)

    def replace(self, **changes: Any) -> TrainState:
        """Return a copy of the state with some of its fields changed."""
        return dataclasses.replace(self, **changes)


class StepResult(NamedTuple):
    """The result of a training step.

    Attributes:
        loss: the mean loss of the passes, a float32 scalar. It has shape (steps,) if several steps were sent to the
            devices together.
        outputs: the output blobs of the last pass, by name.
        update: the arrays that the last step subtracted from the parameters, or None if they were not requested.
        requests: the sum of the encoded requests (to stop or to save a snapshot) of all processes, or None for one
            process; see `parallel.Requests`.
        gradient_norm: the L2 norm of all gradients before clipping, a scalar, or with several iterations an array with
            the norm of each, or None if gradients are not clipped.
    """

    loss: jax.Array
    outputs: Blobs
    update: Params | None = None
    requests: jax.Array | None = None
    gradient_norm: jax.Array | None = None


def iteration_key(key: jax.Array, iteration: Any, pass_index: Any = 0) -> jax.Array:
    """Return the random key that `Solver` passes to `Net.loss` in an iteration, on one device.

        loss, outputs = net.loss(params, state, batch, caffejax.iteration_key(solver.train_state.key, iteration))

    With it any training loop draws the same random numbers, for example in Dropout. JAX can trace the function.

    Args:
        key: the key of training, `Solver.train_state.key`. Any other key starts another sequence.
        iteration: the number of the iteration, from 0.
        pass_index: the number of the pass in the iteration, below `iter_size`.
    """
    return jax.random.fold_in(jax.random.fold_in(key, iteration), pass_index)


def fold_in_pass(net: Net, key: jax.Array, pass_index: Any) -> jax.Array:
    """Return the random key of a pass, from the key of its iteration.

    Several devices, which read the batches in turn, draw what one device draws in several passes.
    """
    axis_name = net.config.axis_name
    if axis_name is not None:
        pass_index = pass_index * jax.lax.axis_size(axis_name) + jax.lax.axis_index(axis_name)
    return jax.random.fold_in(key, pass_index)


def pass_key(ts: TrainState, pass_index: Any) -> jax.Array:
    """Return the random key of pass `pass_index` of the next iteration."""
    return iteration_key(ts.key, ts.iteration, pass_index)


def train_key(key: jax.Array) -> jax.Array:
    """Return the random key of training, derived from the solver's key."""
    return fold_in_name(key, "train")


def init_train_state(
    variables: Variables, optimizer: optax.GradientTransformationExtraArgs, key: jax.Array
) -> TrainState:
    """Return the train state at iteration 0, with an initial optimizer state.

    Args:
        variables: the parameters and running statistics.
        optimizer: the update rule.
        key: the solver's random key, from which `train_key` derives the key of training.
    """
    return TrainState(
        params=variables.params,
        state=variables.state,
        opt_state=optimizer.init(variables.params),
        iteration=full((), 0, jnp.int32),
        key=train_key(key),
        rule=optimizer.rule if isinstance(optimizer, CaffeOptimizer) else "optax",
    )


Passes = Callable[..., tuple[Params, Params, jax.Array, Blobs]]
Step = Callable[..., tuple[TrainState, StepResult]]
Update = Callable[..., tuple[TrainState, Params | None]]


def make_update(
    optimizer: optax.GradientTransformationExtraArgs,
    iter_size: int = 1,
    *,
    keep_update: bool,
    max_barrier_size: float = math.inf,
    kernels: Kernels = "fast",
) -> Update:
    """Return a pure function `update(grads, train_state, rate, loss)`, which updates the parameters in a training step.

    The function returns `(new_state, subtracted_updates)`. `subtracted_updates` is the tree of arrays that the function
    subtracted from the parameters, or None if `keep_update` is false. The gradients must be sums over the passes of an
    iteration, in float32 or bfloat16.

    Args:
        optimizer: the update rule. A `CaffeOptimizer` follows `rate` and the state's iteration. Any other one follows
            its own state, and gets the loss as the argument `value`.
        iter_size: the number of passes in an iteration.
        keep_update: whether to return the subtracted arrays.
        max_barrier_size: the argument `max_size` of `separate_updates`.
        kernels: "fast" to use the method `apply`, if the optimizer has one and `keep_update` is false,
            or "reference" to use optax.
    """
    is_caffe = isinstance(optimizer, CaffeOptimizer)
    apply = optimizer.apply if is_caffe and kernels == "fast" and not keep_update else None

    @jax.jit
    def update(
        grads: Params, ts: TrainState, rate: Any, loss: jax.Array | None = None
    ) -> tuple[TrainState, Params | None]:
        params, grads = separate_updates(ts.params, grads, max_barrier_size)
        grads = jax.tree.map(to_float32, grads)  # XLA fuses this with the update
        if iter_size > 1:
            grads = jax.tree.map(lambda g: g * (1 / iter_size), grads)  # as Caffe; a quotient differs in the last digit
        options = {"rate": rate, "iteration": ts.iteration} if is_caffe else {"value": loss}
        subtracted_updates = None
        if apply is not None:
            params, opt_state = apply(grads, ts.opt_state, params, **options)
        else:
            updates, opt_state = optimizer.update(grads, ts.opt_state, params, **options)
            params = optax.apply_updates(params, updates)
            subtracted_updates = jax.tree.map(lambda u: 0 - u, updates) if keep_update else None
        new_state: TrainState = ts.replace(params=params, opt_state=opt_state, iteration=ts.iteration + 1)
        return new_state, subtracted_updates

    return update


def _average_statistics(net: Net, state: Params) -> Params:
    """Return the mean of the running statistics over devices, if `sync_bn` is set and `jax.shard_map` is active.

    If `sync_bn` is set, the statistics of devices differ only if the state was previously trained without it. One
    collective operation averages the statistics of all layers. The state that recurrent layers carry from one pass to
    the next is not averaged.
    """
    axis_name = net.config.axis_name if net.config.sync_bn else None
    slots = [p.slot for p in net.graph.unique_params if not p.spec.learnable]
    arrays = [state[layer][name] for layer, name in slots]
    if axis_name is None or not any(axis_name in varying_axes(jax.typeof(x)) for x in arrays):
        return state
    split_points = np.cumsum([x.size for x in arrays])[:-1].tolist()
    parts = jnp.split(jax.lax.pmean(jnp.concatenate([x.ravel() for x in arrays]), axis_name), split_points)
    new_tree = {layer: dict(blobs) for layer, blobs in state.items()}
    for (layer, name), x, part in zip(slots, arrays, parts, strict=True):
        new_tree[layer][name] = part.reshape(x.shape)
    return new_tree


def make_passes(net: Net, iter_size: int) -> Passes:
    """Return a pure function that computes the forward and backward passes of an iteration.

    The function `passes(params, state, batches, key)` returns `(gradients, new_state, loss, outputs)`. `batches` are
    `iter_size` batches, stacked by `stack_batches`. The gradients are sums over the passes, the loss is the mean over
    the passes, a float32 scalar, and the outputs are the blobs of the last pass by name.
    """

    grad = jax.value_and_grad(partial(net.loss, required=False), has_aux=True)

    def passes(
        params: Params, state: Params, batches: Mapping[str, jax.Array], key: jax.Array
    ) -> tuple[Params, Params, jax.Array, Blobs]:
        state = _average_statistics(net, state)

        def run_pass(carry: tuple[Any, Params], inputs: Any) -> tuple[tuple[Any, Params], Any]:
            grad_sum, previous_state = carry
            pass_index, batch = inputs
            (loss, aux), grads = grad(params, previous_state, batch, fold_in_pass(net, key, pass_index))
            new_state = jax.tree.map(vary_as, aux.state, previous_state)
            return (jax.tree.map(jnp.add, grad_sum, grads), new_state), (loss, aux.blobs)

        initial = (jax.tree.map(lambda p: vary_as(jnp.zeros_like(p), p), params), state)
        # a single pass needs no loop; a net that runs in parts, or whose shapes change, cannot be in a compiled loop
        if iter_size > 1 and not net.runs_in_parts and not has_varying_shapes(batches):
            inputs = (jnp.arange(iter_size), dict(batches))
            (grads, state), (losses, all_outputs) = jax.lax.scan(run_pass, initial, inputs)
            return grads, state, jnp.mean(losses), jax.tree.map(lambda o: o[-1], all_outputs)
        carry, pass_losses = initial, []
        for i in range(iter_size):
            carry, (loss, outputs) = run_pass(
                carry, (jnp.int32(i), {name: array[i] for name, array in batches.items()})
            )
            pass_losses.append(loss)
        grads, state = carry
        return grads, state, jnp.mean(jnp.stack(pass_losses)), outputs

    return passes


def make_forward(net: Net) -> Passes:
    """Return a pure function that computes the forward pass of the first batch and no gradients.

    The function has the arguments and results of the function that `make_passes` returns, with {} as the gradients.
    """

    def forward(
        params: Params, state: Params, batches: Mapping[str, jax.Array], key: jax.Array
    ) -> tuple[Params, Params, jax.Array, Blobs]:
        if net.config.axis_name is not None:
            key = fold_in_pass(net, key, 0)
        batch = {name: array[0] for name, array in batches.items()}
        loss, outputs = net.loss(params, state, batch, key, required=False)
        return {}, outputs.state, loss, outputs.blobs

    return forward


def make_step(
    net: Net,
    optimizer: optax.GradientTransformationExtraArgs,
    iter_size: int,
    *,
    keep_update: bool = False,
    keep_norm: bool = False,
    mesh: Mesh | None = None,
    parallel: Parallel = Parallel(),
) -> Step:
    """Return a training step, a pure function `step(train_state, batches, rate, requests=None)`.

    The step returns the new train state and a `StepResult`. `batches` are `iter_size` batches, stacked by
    `stack_batches` on one device and joined by `parallel.join_batches` on a mesh. On a mesh, state and outputs have the
    axes of `parallel.data_parallel`. `requests` contains one number for each device, and these numbers are summed over
    devices together with the gradients.

    Args:
        net: the train net.
        optimizer: the update rule.
        iter_size: the number of passes in an iteration.
        keep_update: whether the result contains the arrays that were subtracted from the parameters.
        keep_norm: whether the result contains the norm of the gradients.
        mesh: the devices, or None for one device.
        parallel: the settings of training on several devices.

    Raises:
        GraphError: if a layer needs a backward pass, but its type has none.
    """
    net.graph.check_backward()
    run_passes = make_passes(net, iter_size)

    def passes_with_requests(params: Params, state: Params, inputs: Any, key: jax.Array) -> Any:
        batches, requests = inputs
        grads, state, loss, outputs = run_passes(params, state, batches, key)
        # beside the gradients, so that one collective operation sums both over the devices
        return (grads, None if requests is None else jnp.sum(requests)), state, loss, outputs

    passes: Callable[..., Any] = passes_with_requests
    if mesh is not None:
        sum_in_bfloat16 = net.config.precision == "bfloat16" and parallel.reduce_dtype == "auto"
        passes = data_parallel(passes, mesh, sum_in_bfloat16=sum_in_bfloat16)
    max_barrier_size, kernels = _MAX_BARRIER_SIZE[net.config.precision], net.config.kernels
    update = make_update(
        optimizer, iter_size, keep_update=keep_update, max_barrier_size=max_barrier_size, kernels=kernels
    )

    def step(
        ts: TrainState, batches: Mapping[str, jax.Array], rate: Any, requests: jax.Array | None = None
    ) -> tuple[TrainState, StepResult]:
        total: jax.Array | None
        ts = ts.replace(params=net.rewrite_params(ts.params))
        key = jax.random.fold_in(ts.key, ts.iteration)
        (grads, total), state, loss, outputs = passes(ts.params, ts.state, (batches, requests), key)
        new_state, subtracted_updates = update(grads, ts, rate, loss)
        norm = compute_total_norm(jax.tree.map(to_float32, grads)) if keep_norm else None
        return new_state.replace(state=state), StepResult(loss, outputs, subtracted_updates, total, norm)

    return step


def make_steps(step: Step) -> Callable[..., tuple[TrainState, StepResult, StepResult]]:
    """Return a function that computes several training steps in one call.

    This is faster for small nets, for which the call takes as long as the computation of a step. The function
    `steps(train_state, batches, rates, requests=None, count=None)` takes batches and rates with an additional first
    axis, the steps. It returns the new state, the last step's result with the losses and norms of all steps, and the
    last step's result as it is.

    With `count`, it computes the first `count` steps; the losses and norms of the others are 0. The number is a value,
    so one program serves all numbers, and each iteration has the same bits with any of them.
    """

    def steps(
        ts: TrainState,
        batches: Mapping[str, jax.Array],
        rates: Any,
        requests: jax.Array | None = None,
        count: jax.Array | None = None,
    ) -> tuple[TrainState, StepResult, StepResult]:
        def select(i: Any) -> Any:
            return jax.tree.map(lambda a: a[i], (dict(batches), rates))

        def run_step(i: Any, carry: Any) -> Any:
            ts, _, history = carry
            ts, result = step(ts, *select(i), requests)
            values = result.loss, result.gradient_norm
            return ts, result, jax.tree.map(lambda h, v: h.at[i].set(v), history, values)

        shapes = jax.eval_shape(step, ts, *select(0), requests)[1]
        last = jax.tree.map(lambda a: jnp.zeros(a.shape, a.dtype), shapes)
        values = shapes.loss, shapes.gradient_norm
        history = jax.tree.map(lambda a: jnp.zeros((len(rates), *a.shape), a.dtype), values)
        # the last result is carried, as a scan would store the outputs of all steps; XLA knows a constant number of
        # iterations, and need not ask the device before each
        number = len(rates) if count is None else count
        ts, last, (losses, norms) = jax.lax.fori_loop(0, number, run_step, (ts, last, history))
        return ts, last._replace(loss=losses, gradient_norm=norms), last

    return steps


def join_results(results: Sequence[StepResult]) -> StepResult:
    """Return the results of single steps, or of several, as one result: the last one's with the losses of all."""
    losses = [jnp.atleast_1d(result.loss) for result in results]
    norms = [jnp.atleast_1d(result.gradient_norm) for result in results if result.gradient_norm is not None]
    return results[-1]._replace(loss=jnp.concatenate(losses), gradient_norm=jnp.concatenate(norms) if norms else None)


def has_varying_shapes(batches: Mapping[str, Any]) -> bool:
    """Return whether the batches that `stack_batches` stacked differ in shape. Their blobs are then lists of arrays."""
    return any(isinstance(arrays, list) for arrays in batches.values())


def stack_batches(batches: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return each blob of an iteration's batches by name, stacked along a new axis 0, or as a list if shapes differ."""
    if len(batches) == 1:  # a view: one batch is not copied
        return {name: array[None] for name, array in batches[0].items()}
    blobs = {name: [b[name] for b in batches] for name in batches[0]}
    padded = {
        name: stack_padded(arrays)
        for name, arrays in blobs.items()
        if any(isinstance(array, PaddedRows) for array in arrays)
    }
    arrays = {name: arrays for name, arrays in blobs.items() if name not in padded}
    if any(np.shape(array) != np.shape(stack[0]) for stack in arrays.values() for array in stack[1:]):
        return {name: [blob[i] for i in range(len(batches))] for name, blob in (blobs | padded).items()}
    return {name: padded[name] if name in padded else np.stack(stack) for name, stack in blobs.items()}
