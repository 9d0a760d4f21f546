"""The fused SGD update makes one pass over memory and gives optax's and Caffe's numbers."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from caffejax.core.schema.caffe_pb2 import SolverParameter
from caffejax.core.solver.caffe_optimizer import Multipliers, caffe_optimizer
from caffejax.core.solver.train_step import TrainState, make_update
from caffejax.core.solver.update_rules import compute_momentum

SHAPES: Any = {"conv": {"weight": (6, 3, 3, 3), "bias": (6,)}, "ip": {"weight": (300, 130)}, "scale": {"weight": ()}}
MULTIPLIERS = {
    ("conv", "weight"): Multipliers(1, 1),
    ("conv", "bias"): Multipliers(2, 0),
    ("ip", "weight"): Multipliers(0, 1),
    ("scale", "weight"): Multipliers(0.5, 3),
}
FUSED_SETTINGS: list[dict[str, Any]] = [
    {"momentum": 0.9, "weight_decay": 0.05},
    {"momentum": 0.5, "weight_decay": 0.05, "iter_size": 4},
    {"momentum": 0.9, "clip_gradients": 1.5},
    {"momentum": 0.0, "weight_decay": 0.1, "regularization_type": "NONE"},
    {},
]
UNFUSED_SETTINGS: list[dict[str, Any]] = [
    {"type": "Nesterov", "momentum": 0.9},
    {"type": "Adam", "momentum": 0.9},
    {"weight_decay": 0.1, "regularization_type": "L1"},
    {"momentum": 0.9, "momentum_policy": "poly", "max_momentum": 0.99, "max_iter": 9},
    {"momentum": 0.9, "larc": True},
    {"clip_weights": 1.0},
]


def draw_arrays(seed: int) -> Any:
    rng = np.random.default_rng(seed)
    shapes, tree = jax.tree.flatten(SHAPES, is_leaf=lambda x: isinstance(x, tuple))
    return tree.unflatten(jnp.asarray(rng.normal(size=shape), jnp.float32) for shape in shapes)


def run_updates(param: SolverParameter, steps: int, **options: Any) -> TrainState:
    optimizer = caffe_optimizer(param, MULTIPLIERS)
    update = jax.jit(make_update(optimizer, param.iter_size, **options))
    ts = TrainState(draw_arrays(0), {}, optimizer.init(draw_arrays(0)), jnp.int32(0), jax.random.key(0))
    for i in range(steps):
        ts, _ = update(draw_arrays(i + 1), ts, 0.1 / (i + 1))
    return ts


@pytest.mark.parametrize("settings", FUSED_SETTINGS, ids=str)
def test_fused_sgd_equals_optax_and_numpy(settings: dict[str, Any]) -> None:
    param = SolverParameter(**{"type": "SGD"} | settings)
    fused = run_updates(param, 3, keep_update=False)
    for expected in (
        run_updates(param, 3, keep_update=True),
        run_updates(param, 3, keep_update=False, kernels="reference"),
    ):
        for a, b in ((fused.params, expected.params), (fused.opt_state, expected.opt_state)):
            jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6), a, b)

    weight, slot = np.asarray(draw_arrays(0)["conv"]["weight"], np.float64), np.zeros(SHAPES["conv"]["weight"])
    decay = 0 if param.regularization_type == "NONE" else param.weight_decay
    for i in range(3):
        grads = draw_arrays(i + 1)
        norm = np.sqrt(sum(float((g**2).sum()) for g in jax.tree.leaves(grads)))
        clip_scale = 1 if param.clip_gradients < 0 else min(1, param.clip_gradients / norm)
        grad = np.asarray(grads["conv"]["weight"], np.float64) * clip_scale / param.iter_size
        slot = 0.1 / (i + 1) * (grad + decay * weight) + param.momentum * slot
        weight = weight - slot
    np.testing.assert_allclose(fused.params["conv"]["weight"], weight, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("is_fused", "settings"), [(True, s) for s in FUSED_SETTINGS] + [(False, s) for s in UNFUSED_SETTINGS], ids=str
)
def test_only_plain_sgd_is_fused(is_fused: bool, settings: dict[str, Any]) -> None:
    optimizer = caffe_optimizer(SolverParameter(**{"type": "SGD"} | settings), MULTIPLIERS)
    assert isinstance(optimizer, optax.GradientTransformationExtraArgs)
    assert (optimizer.apply is not None) == is_fused


def test_a_fused_update_supports_grad_and_vmap() -> None:
    optimizer = caffe_optimizer(SolverParameter(type="SGD", momentum=0.9, weight_decay=0.1), MULTIPLIERS)
    update = make_update(optimizer, keep_update=False)

    def norm_after(rate: Any, grads: Any) -> Any:
        ts = TrainState(draw_arrays(0), {}, optimizer.init(draw_arrays(0)), jnp.int32(0), jax.random.key(0))
        return jnp.sum(update(grads, ts, rate)[0].params["conv"]["weight"] ** 2)

    slope = jax.grad(norm_after)(0.1, draw_arrays(1))
    norms = [jax.jit(norm_after)(rate, draw_arrays(1)) for rate in (0.09, 0.11)]
    np.testing.assert_allclose(slope, (norms[1] - norms[0]) / 0.02, rtol=1e-2)
    mapped_norms = jax.vmap(norm_after, (0, None))(jnp.array([0.09, 0.11]), draw_arrays(1))
    np.testing.assert_allclose(mapped_norms, norms, rtol=1e-5)


def test_a_constant_momentum_is_computed_on_the_host() -> None:
    with jax.transfer_guard("disallow_explicit"):
        assert compute_momentum(SolverParameter(type="SGD", momentum=0.5), 0.1, 3) == 0.5
