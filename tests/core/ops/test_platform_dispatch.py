"""The implementation that is selected under every transformation; the two implementations give different numbers."""

import os
import re
import subprocess
import sys
from typing import Any

import jax
import jax.extend
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export

from caffejax.core.ops.platform_dispatch import PlatformOp
from compile_flags import make_cpu_devices_environment

X = jnp.arange(1.0, 4)


def run_plain(x: jax.Array) -> tuple[jax.Array]:
    return (jnp.square(x),)


def run_on_cpu(x: jax.Array) -> tuple[jax.Array]:
    return (10 * jnp.square(x),)


DIFFERENTIABLE = PlatformOp(run_plain, run_on_cpu)
NOT_DIFFERENTIABLE = PlatformOp(run_plain, run_on_cpu, differentiable=False)


def make_function(operation: PlatformOp) -> Any:
    return lambda x: operation(x)[0]


@pytest.mark.parametrize(
    ("operation", "derivative"), [(DIFFERENTIABLE, 10), (NOT_DIFFERENTIABLE, 1)], ids=["smooth", "not smooth"]
)
@pytest.mark.parametrize("transform", [jax.jit, lambda f: f], ids=["jit", "eager"])
def test_cpus_run_the_implementation_for_cpus(operation: PlatformOp, derivative: int, transform: Any) -> None:
    """Derivatives and batches use it as well, if it can be transformed."""
    f = make_function(operation)
    np.testing.assert_array_equal(transform(f)(X), 10 * X**2)
    np.testing.assert_array_equal(transform(jax.grad(lambda x: f(x).sum()))(X), derivative * 2 * X)
    np.testing.assert_array_equal(transform(lambda x: jax.jvp(f, (x,), (x,))[1])(X), derivative * 2 * X**2)
    np.testing.assert_array_equal(transform(jax.vmap(f))(X[None]), derivative * X[None] ** 2)
    np.testing.assert_array_equal(transform(jax.hessian(lambda x: f(x).sum()))(X), derivative * 2 * jnp.eye(3))


def test_vmap_calls_the_batch_rule() -> None:
    def batch_rule(_: Any, arrays: Any, axes: Any) -> Any:
        return (100 * jnp.moveaxis(arrays[0], axes[0], 0),)

    operation = PlatformOp(run_plain, run_on_cpu, differentiable=False, batch_rule=batch_rule)
    np.testing.assert_array_equal(jax.vmap(make_function(operation), in_axes=1)(X[:, None]), 100 * X[None])


@pytest.mark.parametrize("platforms", [["cpu"], ["tpu"], ["cuda"], ["cpu", "cuda", "tpu"]])
def test_exported_code_contains_the_plain_implementation(platforms: list[str]) -> None:
    (n,) = export.symbolic_shape("n")
    exported = export.export(jax.jit(make_function(DIFFERENTIABLE)), platforms=platforms)(
        jax.ShapeDtypeStruct((n,), jnp.float32)
    )
    if "cpu" in platforms:
        np.testing.assert_array_equal(exported.call(X), X**2)
    assert "1.000000e+01" not in exported.mlir_module()


def test_other_platforms_run_the_plain_implementation() -> None:
    text = jax.jit(make_function(DIFFERENTIABLE)).trace(X).lower(lowering_platforms=("tpu",)).as_text()
    assert "1.000000e+01" not in text
    assert "1.000000e+01" in jax.jit(make_function(DIFFERENTIABLE)).lower(X).as_text()


@pytest.mark.parametrize(("platform", "number"), [("cuda", 20), ("rocm", 20), ("tpu", 30)])
def test_gpus_and_tpus_run_their_implementations(platform: str, number: int) -> None:
    """Derivatives and batches use them as well; exported code does not."""
    operation = PlatformOp(lambda x: (1 * x,), lambda x: (10 * x,), gpu=lambda x: (20 * x,), tpu=lambda x: (30 * x,))

    def factors(text: str) -> set[float]:
        return {float(n) for n in re.findall(r"dense<([\d.e+]+)> : tensor<f32>", text)}

    f = make_function(operation)
    for g in (f, jax.vmap(f), lambda x: jax.vjp(f, x)[1](x)):
        assert factors(jax.jit(g).trace(X).lower(lowering_platforms=(platform,)).as_text()) == {number}
    assert factors(export.export(jax.jit(f), platforms=[platform])(X).mlir_module()) == {1}


SHARDED_SCRIPT = """
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
from caffejax.core.ops.platform_dispatch import PlatformOp
operation = PlatformOp(lambda x: (x * 1,), lambda x: (x * 10,))
mesh = Mesh(jax.devices(), ("d",))
x = jnp.ones(4)
sharded = jax.device_put(x, NamedSharding(mesh, P("d")))
f = lambda x: operation(x)[0]
print(*(float(y.max()) for y in (jax.jit(f)(x), jax.jit(f)(sharded), f(sharded))))
print(float(jax.jit(jax.shard_map(f, mesh=mesh, in_specs=P("d"), out_specs=P("d")))(x).max()))
explicit = jax.make_mesh((4,), ("d",), axis_types=(jax.sharding.AxisType.Explicit,))
with jax.set_mesh(explicit):
    print(float(jax.jit(f)(jax.device_put(x, NamedSharding(explicit, P("d")))).max()))
"""


def test_partitioned_programs_run_the_plain_implementation() -> None:
    """Under shard_map, where each device runs its own program, the CPU implementation is used."""
    environment = os.environ | make_cpu_devices_environment(4)
    process = subprocess.run(
        [sys.executable, "-c", SHARDED_SCRIPT], capture_output=True, text=True, env=environment, check=True
    )
    assert process.stdout.split() == ["10.0", "1.0", "1.0", "10.0", "1.0"]


def test_the_matmul_precision_of_the_call_is_used() -> None:
    operation = PlatformOp(lambda x: (x @ x,), lambda x: (x @ x,))
    with jax.default_matmul_precision("float32"):
        inner = jax.make_jaxpr(make_function(operation))(jnp.ones((2, 2)))
    gradient = jax.grad(lambda x: jax.extend.core.jaxpr_as_fun(inner)(x)[0].sum())
    text = jax.jit(gradient).trace(jnp.ones((2, 2))).lower(lowering_platforms=("tpu",)).as_text()
    assert "HIGHEST" in text
    assert "DEFAULT" not in text
