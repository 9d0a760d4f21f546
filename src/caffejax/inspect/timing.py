"""How long a net's layers take, each compiled by itself, and how long the whole net takes, compiled as one."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ..data.drawn import feed
from ..data.loader import Loader
from ..graph import Layer
from ..kernels import compiling
from ..layers.calling import finished
from ..net import Net, Variables
from ..schedule.running import Given, run_layers
from .index_check import check_indices

Values = dict[str, jax.Array]


class LayerTime(NamedTuple):
    """Milliseconds of one layer in one pass; backward is 0 where no gradient passes."""

    name: str
    forward: float
    backward: float


class Timer:
    """Times a net's layers and the whole net, pass by pass.

    Every layer is compiled by itself, as Caffe runs them, so the sum says where the time goes and not what a user
    waits for: the compiler makes one program of the whole net, which `whole` times.

    Args:
        net: the net. What is fed by hand is random; data layers are read.
        variables: its params and running statistics.
        key: for layers that are random.
    """

    def __init__(self, net: Net, variables: Variables, key: jax.Array) -> None:
        net.graph.check_backward()
        self._net, self._variables, self._key = net, variables, key
        by_hand = {layer.key for layer in net.graph.layers if layer.type.input_shapes is not None}
        drawn = feed(net.graph, {}, np.random.default_rng(0)) if by_hand else {}
        tops = [top for layer in net.graph.layers if layer.key in by_hand for top in layer.tops]
        self._by_hand = {top: jnp.asarray(drawn[top], jnp.float32) for top in tops}
        self._loader = Loader(net.graph, by_hand=lambda: self._by_hand)
        self._layers = [_Alone(layer, net) for layer in net.graph.layers]
        self._forward = net.jit(lambda v, x: net.loss(v.params, v.state, x, key))
        self._both = net.jit(lambda v, x: jax.value_and_grad(net.loss, has_aux=True)(v.params, v.state, x, key))

    def layers(self) -> list[LayerTime]:
        """One pass, layer by layer."""
        values: Values = dict(self._by_hand)
        state = dict(self._variables.state)
        times = []
        for alone in self._layers:
            layer = alone.layer
            if layer.type.open_source is not None:
                ms, tops = _timed(self._read, layer)
                values |= dict(zip(layer.tops, tops, strict=True))
                times.append(LayerTime(layer.name, ms, 0.0))
            elif layer.type.is_fed:
                times.append(LayerTime(layer.name, 0.0, 0.0))
            else:
                if layer.type.count_indexed is not None:
                    check_indices(layer, [values[name] for name in layer.bottoms], self._net.graph.file)
                given = Given(self._variables.params, state, {}, self._key, {})
                times.append(alone(given, values, state))
        return times

    def whole(self) -> tuple[float, float]:
        """Milliseconds of a forward pass, and of a forward and backward pass, of the net compiled as one."""
        batch = jax.device_put(next(self._loader))
        forward, _ = _timed(self._forward, self._variables, batch)
        both, _ = _timed(self._both, self._variables, batch)
        return forward, both

    def _read(self, layer: Layer) -> tuple[jax.Array, ...]:
        return finished(layer.context, list(self._loader.read(layer.key).values()))

    def close(self) -> None:
        """Closes the data."""
        self._loader.close()


class _Alone:
    """One layer, compiled by itself."""

    def __init__(self, layer: Layer, net: Net) -> None:
        self.layer = layer

        def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
            return function if layer.type.host else compiling.jit(function, layer.context.kernels)

        def run(own: Mapping[str, Any], bottoms: Values, given: Given) -> Any:
            given = given._replace(params={**given.params, **own})
            return run_layers((layer,), given, bottoms, net.backward, net.graph.file)

        def pulled(own: Mapping[str, Any], bottoms: Values, given: Given) -> Any:
            def tops(own: Mapping[str, Any], bottoms: Values) -> Any:
                result = run(own, bottoms, given)
                return [result.values[top] for top in layer.tops]

            return jax.vjp(tops, own, bottoms)

        self._run = compiled(run)
        self._forward_for_backward = compiled(pulled)
        self._pull = compiled(lambda pull, diffs: pull(diffs))

    def __call__(self, given: Given, values: Values, state: dict[str, Any]) -> LayerTime:
        """Times it; puts its tops into `values` and its new statistics into `state`."""
        layer = self.layer
        keys = {p.owner.layer for p in (*layer.params, *layer.carried)}
        own = {key: blobs for key, blobs in given.params.items() if key in keys}
        given = given._replace(params={}, state={key: blobs for key, blobs in state.items() if key in keys})
        bottoms = {name: values[name] for name in layer.bottoms}
        forward, result = _timed(self._run, own, bottoms, given)
        backward = 0.0
        if layer.need_backward:
            tops, pull = self._forward_for_backward(own, bottoms, given)
            backward, _ = _timed(self._pull, pull, [jnp.ones_like(top) for top in tops])
        values |= {top: result.values[top] for top in layer.tops}
        state |= result.state
        return LayerTime(layer.name, forward, backward)


def mean_times(passes: Sequence[Sequence[LayerTime]]) -> Iterator[LayerTime]:
    """The mean of each layer over passes."""
    for times in zip(*passes, strict=True):
        yield LayerTime(
            times[0].name,
            float(np.mean([t.forward for t in times])),
            float(np.mean([t.backward for t in times])),
        )


def _timed(function: Callable[..., Any], *arguments: Any) -> tuple[float, Any]:
    start = time.perf_counter()
    result = jax.block_until_ready(function(*arguments))
    return 1000 * (time.perf_counter() - start), result
