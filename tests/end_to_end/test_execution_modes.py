"""All ways of running a net on one device give the same numbers, for every golden net."""

import functools
import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import caffejax.pycaffe as caffe
from caffejax import Net
from caffejax.base.variables import Variables
from caffejax.core.data.loader import Loader
from caffejax.core.program.interpreter import PassInputs, compute_part
from caffejax.core.program.schedule import make_part
from caffejax.core.schema import read_net
from caffejax.core.schema.caffe_pb2 import NetParameter
from caffejax.pycaffe._executor import Executor

GOLDEN = Path(__file__).parents[1] / "golden" / "nets"
KEY = jax.random.key(0)
SQUARES = """
layer {{ name: "flat {0}" type: "Reshape" bottom: "{0}" top: "flat {0}" reshape_param {{ shape {{ dim: -1 }} }} }}
layer {{ name: "squares of {0}" type: "Reduction" bottom: "flat {0}" top: "squares of {0}" loss_weight: 1
  reduction_param {{ operation: SUMSQ }} }}
"""


class Case(NamedTuple):
    """A golden net as one of its recordings builds it."""

    name: str
    phase: Any
    level: int
    stages: tuple[str, ...]

    def make_net(self, change: Callable[[NetParameter, Net], None] = lambda message, net: None, **options: Any) -> Net:
        """The net, changed and with these options."""
        message = NetParameter()
        message.CopyFrom(build_with_losses(self)[0])
        change(message, get_plain_net(self))
        return self.build(message, **options)

    def build(self, message: NetParameter, **options: Any) -> Net:
        return Net(message, self.phase, level=self.level, stages=self.stages, **options)


# One net's ways follow each other, so one entry is enough for these functions.
@functools.lru_cache(maxsize=1)
def build_with_losses(case: Case) -> tuple[NetParameter, Net]:
    """A case with a loss on every output if it has none, because otherwise it has no gradients."""
    message = read_net(GOLDEN / f"{case.name}.prototxt")
    net = case.build(message)
    if not net.graph.loss_weights:
        producer_types = {top: layer.type for layer in net.graph.layers for top in layer.tops}
        for name in (name for name in net.outputs if producer_types[name].has_backward):
            message.MergeFrom(read_net(SQUARES.format(name)))
        net = case.build(message)
    return message, net


def get_plain_net(case: Case) -> Net:
    """The net of a case without changes, built once."""
    return build_with_losses(case)[1]


class PassResults(NamedTuple):
    """The results of a forward and a backward pass."""

    loss: Any
    outputs: dict[str, Any]
    grads: Any
    state: Any


def list_cases() -> list[Any]:
    """Every net that Caffe built, in each phase that makes a difference to its layers."""
    result = {}
    for name in (c["case"] for c in json.loads((GOLDEN / "index.json").read_text())["nets"]):
        recorded = json.loads((GOLDEN / f"{name}.json").read_text())
        for run in recorded["runs"] if "values_error" not in recorded else ():
            if "built" in run:
                types = tuple(sorted({layer["type"] for layer in run["built"]["layers"]}))
                phase = run["phase"] if {"BatchNorm", "Dropout"} & set(types) else None
                result.setdefault((name, types, phase), Case(name, run["phase"], run["level"], tuple(run["stages"])))
    return [pytest.param(case, id="-".join(map(str, (*case[:3], *case.stages)))) for case in result.values()]


# all ways of one net follow each other, so that what is expected of it is computed once
every_net = pytest.mark.parametrize("case", list_cases(), scope="module")


@functools.cache
def get_expected_results(case: Case) -> PassResults:
    return run_compiled(case, get_plain_net(case))


@functools.lru_cache(maxsize=1)
def make_variables(case: Case) -> Variables:
    """Random parameters, and statistics that are not zero."""
    rng = np.random.default_rng(1)
    params, state = get_plain_net(case).init(KEY)
    params = jax.tree.map(lambda x: jnp.asarray(rng.normal(size=x.shape).astype(x.dtype)), params)
    statistics = jax.tree.map(lambda x: np.asarray(x) + rng.uniform(0.5, 1, x.shape).astype(x.dtype), state)
    return Variables(params, jax.tree.map(jnp.asarray, statistics))


def make_inputs(net: Net) -> dict[str, jax.Array]:
    rng = np.random.default_rng(2)
    return {
        name: jnp.asarray(np.float32(rng.integers(0, 2, shape) if "label" in name else rng.normal(size=shape)))
        for name, shape in ((name, net.graph.blobs[name].shape) for name in net.input_names)
    }


def run_compiled(case: Case, net: Net) -> PassResults:
    params, state = make_variables(case)

    def loss(params: Any) -> Any:
        return net.loss(params, state, make_inputs(net), KEY, required=False)

    (total, outputs), grads = net.jit(jax.value_and_grad(loss, has_aux=True))(params)
    return PassResults(total, outputs.blobs, grads, outputs.state)


def run_layer_by_layer(case: Case, net: Net) -> PassResults:
    variables = make_variables(case)

    def loss(params: Any) -> Any:
        values: dict[str, jax.Array] = {}
        state: Any = variables.state
        total = jnp.zeros(())
        for layer in net.graph.layers:
            inputs = PassInputs(params, state, make_inputs(net), KEY, {})
            result = compute_part(make_part((layer,)), inputs, values)
            values, state = values | result.values, result.state
            total += result.loss
        return total, ({name: values[name] for name in net.outputs}, state)

    (total, (outputs, state)), grads = jax.jit(jax.value_and_grad(loss, has_aux=True))(variables.params)
    return PassResults(total, outputs, grads, state)


def run_in_pycaffe(case: Case, net: Net, run: Callable[[Executor, int], list[jax.Array]]) -> PassResults:
    """Return the values in a pycaffe net after `run(net, index of its last layer)`, with its losses."""
    executor = Executor(net, jax.tree.map(jnp.array, make_variables(case)), Loader(net.graph, read_caller_inputs=dict))
    for name, value in make_inputs(net).items():
        executor.memories.blobs[name].data[...] = value
    loss = sum(run(executor, len(net.graph.layers) - 1))
    memories = executor.memories
    return PassResults(loss, memories.get_values(net.outputs), memories.param_diffs, memories.variables.state)


def run_fused(executor: Executor, last: int) -> list[jax.Array]:
    return executor.forward_backward((KEY,))


def run_in_ranges(executor: Executor, last: int) -> list[jax.Array]:
    ranges = [(a, b - 1) for a, b in itertools.pairwise(sorted({0, last // 3 + 1, 2 * last // 3 + 1, last + 1}))]
    losses = [loss for low, high in ranges for loss in executor.forward(low, high, (KEY,))]
    for low, high in reversed(ranges):
        executor.backward(high, low)
    return losses


def run_with_callbacks(executor: Executor, last: int) -> list[jax.Array]:
    events: list[tuple[str, int]] = []
    for event, callbacks in executor.callbacks.items():
        callbacks.append(lambda i, event=event: events.append((event, i)))
    losses = executor.forward_backward((KEY,))
    assert len(events) == 4 * (last + 1)
    return losses


def assert_same(actual: PassResults, expected: PassResults) -> None:
    """Compare up to rounding; gradients that cancel out, such as of a bias before BatchNorm, are rounding only."""
    assert jax.tree.structure(actual) == jax.tree.structure(expected)
    actual, expected = jax.tree.map(np.asarray, (actual, expected))
    for x_part, y_part in zip(actual, expected, strict=True):
        largest = max((float(np.abs(x).max(initial=0)) for x in jax.tree.leaves(y_part)), default=0.0)
        for (path, x), y in zip(jax.tree_util.tree_leaves_with_path(x_part), jax.tree.leaves(y_part), strict=True):
            np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-6 * largest, err_msg=jax.tree_util.keystr(path))


@every_net
@pytest.mark.parametrize("run", [run_fused, run_in_ranges, pytest.param(run_with_callbacks, marks=pytest.mark.long)])
def test_pycaffe_gives_the_same_results(case: Case, run: Callable[[Executor, int], list[jax.Array]]) -> None:
    assert_same(run_in_pycaffe(case, case.make_net(), run), get_expected_results(case))


@every_net
def test_running_layer_by_layer_gives_the_same_results(case: Case) -> None:
    assert_same(run_layer_by_layer(case, get_plain_net(case)), get_expected_results(case))


@every_net
def test_rematerialization_gives_the_same_results(case: Case) -> None:
    assert_same(run_compiled(case, case.make_net(remat="auto", memory_limit=1)), get_expected_results(case))


class IdentityLayer(caffe.Layer):
    """A layer that returns its bottom in place; it runs on the host, so it splits a net."""

    def setup(self, bottom: Any, top: Any) -> None:
        pass

    def forward(self, bottom: Any, top: Any) -> None:
        pass

    def backward(self, top: Any, propagate_down: Any, bottom: Any) -> None:
        pass


def insert_host_layers(message: NetParameter, net: Net) -> None:
    """Puts a layer that does nothing behind every third one that makes no loss."""
    layers = list(message.layer)
    del message.layer[:]
    for i, layer in enumerate(layers):
        message.layer.append(layer)
        if layer.top and i % 3 == 1 and not (layer.loss_weight or net.graph.loss_weights.keys() & set(layer.top)):
            host_layer = message.layer.add(
                name=f"after {layer.name}", type="Python", bottom=layer.top[:1], top=layer.top[:1]
            )
            host_layer.python_param.module, host_layer.python_param.layer = __name__, IdentityLayer.__name__
            host_layer.include.extend(layer.include)
            host_layer.exclude.extend(layer.exclude)


@every_net
def test_splitting_at_host_layers_gives_the_same_results(case: Case) -> None:
    assert_same(run_compiled(case, case.make_net(insert_host_layers)), get_expected_results(case))


@pytest.mark.parametrize(
    "case", [case for case in list_cases() if case.id.startswith(("inplace", "slash", "v1_convnet"))]
)
def test_pycaffe_gives_the_same_results_with_host_layers(case: Case) -> None:
    """In nets with in-place layers, values must outlive the layers that overwrite them."""
    assert_same(run_in_pycaffe(case, case.make_net(insert_host_layers), run_fused), get_expected_results(case))
