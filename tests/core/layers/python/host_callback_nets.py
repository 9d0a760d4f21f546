"""Nets with Python layers on the host, beside nets of built-in layers that compute the same."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from python_nets import draw_inputs, input_layer, python_layer

from caffejax import Net

INPUTS = input_layer((8, 5), (8, 3))
SHAPES = ((8, 5), (8, 3))
LINEAR = python_layer("ip", "Linear", "x0", "ip", param_str="{'num_output': 3}")
INNER_PRODUCT = 'layer { name: "ip" type: "InnerProduct" bottom: "x0" top: "ip" inner_product_param { num_output: 3 } }'
TANH = 'layer { name: "tanh" type: "TanH" bottom: "ip" top: "t" }'
EUCLIDEAN = python_layer("loss", "Euclidean", "%s x1", "loss", "loss_weight: 1")
EUCLIDEAN_LOSS = 'layer { name: "loss" type: "EuclideanLoss" bottom: "%s" bottom: "x1" top: "loss" }'
TEN = python_layer("ten", "SimpleLayer", "%s", "%s")
POWER = 'layer { name: "ten" type: "Power" bottom: "%s" top: "%s" power_param { scale: 10 } }'
NUMBER = python_layer("number", "LearnedNumber", tops="number")
PARAMETER = """layer { name: "number" type: "Parameter" top: "number" parameter_param { shape { dim: 1 } } }"""
SUM = 'layer { name: "sum" type: "Reduction" bottom: "number" top: "sum" loss_weight: 1 }'

NETS = {  # with Python layers, with built-in layers
    "blobs": (LINEAR + TANH + EUCLIDEAN_LOSS % "t", INNER_PRODUCT + TANH + EUCLIDEAN_LOSS % "t"),
    "loss": (INNER_PRODUCT + TANH + EUCLIDEAN % "t", INNER_PRODUCT + TANH + EUCLIDEAN_LOSS % "t"),
    "middle": (
        INNER_PRODUCT + TANH + TEN % ("t", "u") + EUCLIDEAN_LOSS % "u",
        INNER_PRODUCT + TANH + POWER % ("t", "u") + EUCLIDEAN_LOSS % "u",
    ),
    "input": (
        TEN % ("x0", "u") + (INNER_PRODUCT + TANH).replace('"x0"', '"u"') + EUCLIDEAN_LOSS % "t",
        POWER % ("x0", "u") + (INNER_PRODUCT + TANH).replace('"x0"', '"u"') + EUCLIDEAN_LOSS % "t",
    ),
    "all in a row": (
        LINEAR + TEN % ("ip", "u") + EUCLIDEAN % "u",
        INNER_PRODUCT + POWER % ("ip", "u") + EUCLIDEAN_LOSS % "u",
    ),
    "no bottoms": (
        INNER_PRODUCT + EUCLIDEAN_LOSS % "ip" + NUMBER + SUM,
        INNER_PRODUCT + EUCLIDEAN_LOSS % "ip" + PARAMETER + SUM,
    ),
}

Loss = Callable[[Any, Any], jax.Array]


class Nets(NamedTuple):
    """The losses of a net with Python layers and of its twin, as functions of params and inputs."""

    loss: Loss
    twin_loss: Loss
    params: Any
    inputs: Any


def make_nets(name: str) -> Nets:
    """Return the nets of `NETS`, with random params and inputs."""
    host_net, twin = (Net(INPUTS + text, "TRAIN") for text in NETS[name])
    assert host_net.has_host_layers
    assert not twin.has_host_layers
    rng = np.random.default_rng(1)
    params, state = host_net.init(jax.random.key(0))
    params = jax.tree.map(lambda p: rng.normal(size=p.shape).astype(np.float32), params)
    names = {(p.slot.layer, p.index): p.slot.name for p in host_net.graph.unique_params}

    def twin_loss(params: Any, inputs: Any) -> Any:
        twin_params = twin.map_params(lambda p: params[p.slot.layer][names[p.slot.layer, p.index]])
        return twin.loss(twin_params, state, inputs)[0]

    return Nets(lambda params, inputs: host_net.loss(params, state, inputs)[0], twin_loss, params, draw_inputs(*SHAPES))


def train(loss: Loss, params: Any, inputs: Any) -> Any:
    """Three steps of gradient descent in a scan."""

    def step(params: Any, _: None) -> tuple[Any, jax.Array]:
        value, grads = jax.value_and_grad(loss)(params, inputs)
        return jax.tree.map(lambda p, g: p - 0.01 * g, params, grads), value

    return jax.lax.scan(step, params, None, length=3)


def double(tree: Any) -> Any:
    """Stack each array and half of it."""
    return jax.tree.map(lambda a: jnp.stack([a, 0.5 * a]), tree)


def split(inputs: Any, parts: int) -> Any:
    """Split the batch into parts along a new first axis."""
    return jax.tree.map(lambda a: a.reshape(parts, -1, *a.shape[1:]), inputs)


def gradients(loss: Loss) -> Any:
    return jax.value_and_grad(loss, (0, 1))


TRANSFORMS: dict[str, Callable[[Loss, Any, Any], Any]] = {
    "eager": lambda loss, params, inputs: gradients(loss)(params, inputs),
    "jit": lambda loss, params, inputs: jax.jit(gradients(loss))(params, inputs),
    "grad of jit": lambda loss, params, inputs: gradients(jax.jit(loss))(params, inputs),
    "checkpoint": lambda loss, params, inputs: gradients(jax.checkpoint(loss))(params, inputs),
    "jit of checkpoint": lambda loss, params, inputs: jax.jit(gradients(jax.checkpoint(loss)))(params, inputs),
    "scan": train,
    "jit of scan": lambda loss, params, inputs: jax.jit(lambda p, x: train(loss, p, x))(params, inputs),
    "vmap over inputs": lambda loss, params, inputs: jax.vmap(gradients(loss), (None, 0))(params, split(inputs, 4)),
    "jit of vmap": lambda loss, params, inputs: jax.jit(jax.vmap(gradients(loss), (None, 0)))(params, split(inputs, 4)),
    "vmap over params": lambda loss, params, inputs: jax.vmap(gradients(loss), (0, None))(double(params), inputs),
    "jacobian": lambda loss, params, inputs: jax.jacrev(lambda p: loss(p, inputs) * jnp.arange(3.0))(params),
    "cond": lambda loss, params, inputs: jax.lax.cond(True, gradients(loss), gradients(loss), params, inputs),
}


def shard(loss: Loss, params: Any, inputs: Any) -> Any:
    """Gradients with the batch sharded over the devices, by the partitioner."""
    mesh = Mesh(jax.devices(), ("d",))
    sharded = jax.device_put(inputs, NamedSharding(mesh, P("d")))
    return jax.jit(gradients(loss))(jax.device_put(params, NamedSharding(mesh, P())), sharded)


def shard_map(loss: Loss, params: Any, inputs: Any) -> Any:
    """Gradients of the mean over devices of the loss of each device's rows."""
    mesh = Mesh(jax.devices(), ("d",))

    def mean(params: Any, inputs: Any) -> jax.Array:
        return jax.lax.pmean(loss(params, inputs), "d")

    mapped = jax.shard_map(gradients(mean), mesh=mesh, in_specs=(P(), P("d")), out_specs=(P(), (P(), P("d"))))
    return jax.jit(mapped)(params, inputs)


def grad_of_shard_map(loss: Loss, params: Any, inputs: Any) -> Any:
    """The same, differentiated from outside."""
    mesh = Mesh(jax.devices(), ("d",))

    def mean(params: Any, inputs: Any) -> jax.Array:
        return jax.lax.pmean(loss(params, inputs), "d")

    return jax.jit(gradients(jax.shard_map(mean, mesh=mesh, in_specs=(P(), P("d")), out_specs=P())))(params, inputs)


MESH_TRANSFORMS = {"shard": shard, "shard_map": shard_map, "grad of shard_map": grad_of_shard_map}


def compare(name: str, transform: Callable[[Loss, Any, Any], Any]) -> None:
    """Require that a transformation of the net with Python layers gives the result of the net of built-in layers."""
    nets = make_nets(name)
    actual, expected = (transform(loss, nets.params, nets.inputs) for loss in (nets.loss, nets.twin_loss))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5), actual, expected)


def compare_on_mesh(name: str, transform: str) -> None:
    """`compare`, for a process that has several devices."""
    assert jax.device_count() == 8
    compare(name, MESH_TRANSFORMS[transform])
