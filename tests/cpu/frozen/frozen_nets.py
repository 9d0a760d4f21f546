"""Helpers for tests of frozen nets: draw weights and inputs, and compare a net with its frozen form."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from caffejax.base.variables import Variables
from caffejax.core.layers import layer_types
from caffejax.core.program.net import Net
from caffejax.cpu.frozen.frozen_net import Frozen

RTOL = 1e-5  # of a blob's largest number
EMPTY_MAXIMUM = 1e30  # the maximum of no cells is larger than this
FAST_COMPILATION = {"xla_backend_optimization_level": 0}  # what is computed once is better compiled fast


def make_net_text(shape: tuple[int, ...], *layers: str) -> str:
    """Write a net with the input x, and layers in short: `top Type bottom ... > further tops | parameters`."""
    dims = " ".join(f"dim: {n}" for n in shape)
    lines = [f'layer {{ name: "x" type: "Input" top: "x" input_param {{ shape {{ {dims} }} }} }}']
    for i, layer in enumerate(layers):
        words, _, param_text = layer.partition("|")
        words, _, extra_tops = words.partition(">")
        top, layer_type, *bottoms = words.split()
        message, settings = layer_types()[layer_type].signature.param, param_text.strip()
        is_complete = not settings or settings.startswith(("param", "batch", "norm_param"))
        param = settings if is_complete else f"{message} {{ {settings} }}"
        reads = " ".join(f'bottom: "{b}"' for b in bottoms)
        tops = " ".join(f'top: "{t}"' for t in (top, *extra_tops.split()))
        lines.append(f'layer {{ name: "{layer_type}{i}" type: "{layer_type}" {reads} {tops} {param} }}')
    return "\n".join(lines)


def draw_variables(net: Net, seed: int = 0) -> Variables:
    """Draw variables that all affect the outputs: biases and factors of both signs, statistics other than 0 and 1."""
    random = np.random.default_rng(seed)

    def blob(param: Any) -> jax.Array:
        shape, layer_type = param.spec.shape, net.graph.layer(param.slot.layer).type.name
        if layer_type.startswith(("BatchNorm", "BN")):  # variances among them
            return jnp.asarray(random.uniform(0.5, 1.5, shape), jnp.float32)
        scale = np.sqrt(2 / np.prod(shape[1:])) if len(shape) > 1 else 1
        return jnp.asarray(scale * random.normal(size=shape), jnp.float32)

    params = net.map_params(lambda p: blob(p) if p.spec.learnable else None)
    return Variables(params, net.map_params(lambda p: None if p.spec.learnable else blob(p)))


def draw_inputs(net: Net, seed: int = 1, rows: int | None = None) -> dict[str, jax.Array]:
    """Draw normally distributed values for each input of a net."""
    random = np.random.default_rng(seed)
    shapes = {name: net.graph.blobs[name].shape for name in net.input_names}
    return {n: jnp.asarray(random.normal(size=(rows or s[0], *s[1:])), jnp.float32) for n, s in shapes.items()}


def assert_close(actual: Mapping[str, Any], expected: Mapping[str, Any], rtol: float = RTOL) -> None:
    """Compare blobs up to a rounding error of `rtol` times the largest value of each blob."""
    assert sorted(actual) == sorted(expected)
    for name in expected:
        a, b = np.asarray(actual[name]), np.asarray(expected[name])
        assert a.shape == b.shape, name
        largest = np.abs(b, where=np.abs(b) < EMPTY_MAXIMUM, out=np.zeros_like(b)).max(initial=1e-30)
        np.testing.assert_allclose(a, b, rtol=rtol, atol=rtol * largest, err_msg=name)


def assert_frozen_net_equals_net(model: Any, outputs: Iterable[str] | None = None) -> Frozen:
    """Compare a frozen net with the plain lowering of the same net; return the frozen net."""
    plain, net = Net(model, "TEST", kernels="reference"), Net(model, "TEST")
    variables, inputs = draw_variables(plain), draw_inputs(plain)
    output_names = tuple(plain.outputs if outputs is None else outputs)
    key = jax.random.key(0)
    expected = plain.jit(
        lambda v, x: plain.apply(*v, x, key=key, blobs=output_names)[0], compiler_options=FAST_COMPILATION
    )(variables, inputs)
    frozen = net.freeze(variables, output_names)
    assert_close(frozen({name: inputs[name] for name in frozen.input_names}, key), expected)
    return frozen


def find_compiled_types(frozen: Frozen) -> set[str]:
    """Return the types of the layers that oneDNN runs."""
    compiled = frozen.compile()
    return {layer.type.name for lowered in compiled.programs.values() for layer in lowered.part.layers}
