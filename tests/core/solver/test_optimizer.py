"""Caffe's solver as an optax transformation: `Solver`'s numbers in any loop, by the containers of optax and flax."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import orbax.checkpoint as ocp
import pytest
from flax import nnx
from flax.training.train_state import TrainState as FlaxTrainState
from numpy.testing import assert_allclose, assert_array_equal

import caffejax
from caffejax.core.solver.caffe_optimizer import Multipliers, caffe_optimizer
from caffejax.core.solver.lr_schedules import rate_schedule
from caffejax.export import CaffeModule, to_linen

# the layers' order is not that of their names
NET = """
layer { name: "data" type: "Input" top: "data" top: "label"
  input_param { shape { dim: 6 dim: 2 dim: 5 dim: 5 } shape { dim: 6 } } }
layer { name: "zconv" type: "Convolution" bottom: "data" top: "x"
  param { lr_mult: 1 } param { lr_mult: 2 decay_mult: 0 }
  convolution_param { num_output: 4 kernel_size: 3 weight_filler { type: "xavier" } } }
layer { name: "relu" type: "ReLU" bottom: "x" top: "x" }
layer { name: "bn" type: "BatchNorm" bottom: "x" top: "x" }
layer { name: "drop" type: "Dropout" bottom: "x" top: "x" }
layer { name: "frozen" type: "InnerProduct" bottom: "x" top: "y" param { lr_mult: 0 } param { lr_mult: 0 }
  inner_product_param { num_output: 5 weight_filler { type: "xavier" } bias_filler { type: "constant" value: 0.1 } } }
layer { name: "ip" type: "InnerProduct" bottom: "y" top: "z"
  inner_product_param { num_output: 3 weight_filler { type: "xavier" } } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "z" bottom: "label" top: "loss" }
"""
SGD = 'type: "SGD" base_lr: 0.1 momentum: 0.9 weight_decay: 0.01 lr_policy: "step" gamma: 0.5 stepsize: 3'
RULES = {
    "SGD": SGD,
    "clipped": f"{SGD} clip_gradients: 0.3 iter_size: 2",
    "Nesterov": 'type: "Nesterov" base_lr: 0.05 momentum: 0.9 lr_policy: "inv" gamma: 0.1 power: 0.75',
    "AdaGrad": 'type: "AdaGrad" base_lr: 0.01 lr_policy: "poly" power: 0.9 max_iter: 30 delta: 1e-4',
    "RMSProp": 'type: "RMSProp" base_lr: 0.001 rms_decay: 0.9 lr_policy: "fixed" weight_decay: 0.01 delta: 1e-4',
    "AdaDelta": 'type: "AdaDelta" base_lr: 1 momentum: 0.95 delta: 1e-6 lr_policy: "exp" gamma: 0.99',
    "Adam": 'type: "Adam" base_lr: 0.01 momentum: 0.9 momentum2: 0.999 lr_policy: "multistep" gamma: 0.1 stepvalue: 4',
    "AdamW": 'type: "AdamW" base_lr: 0.01 momentum: 0.9 momentum2: 0.99 adamw_decay: 0.1 lr_policy: "fixed"',
    "larc": f"{SGD} larc: true larc_eta: 0.1 warmup_iter: 4 warmup_start_lr: 0.01",
    "momentum policy": f'{SGD} momentum_policy: "poly" max_momentum: 0.99 max_iter: 20 clip_weights: 2',
}
N = 12


def draw_batches(iter_size: int = 1) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    data = rng.normal(size=(N * iter_size, 6, 2, 5, 5)).astype(np.float32)
    return {"data": data, "label": rng.integers(0, 3, (N * iter_size, 6)).astype(np.float32)}


@pytest.fixture(scope="module")
def net() -> caffejax.Net:
    return caffejax.Net(NET, "TRAIN")


@pytest.fixture(scope="module")
def gradients(net: caffejax.Net) -> list[Any]:
    params, _ = net.init(jax.random.key(0))
    rng = np.random.default_rng(1)
    return [jax.tree.map(lambda p: jnp.asarray(rng.normal(size=p.shape), jnp.float32), params) for _ in range(6)]


@pytest.fixture(scope="module")
def params(net: caffejax.Net) -> Any:
    return net.init(jax.random.key(0)).params


def run(tx: Any, params: Any, gradients: list[Any]) -> tuple[Any, Any]:
    """Return params and state after an update for each gradient."""
    update, state = jax.jit(tx.update), tx.init(params)
    for g in gradients:
        updates, state = update(g, state, params)
        params = optax.apply_updates(params, updates)
    return params, state


def assert_equal(actual: Any, expected: Any, rtol: float = 1e-6, atol: float = 1e-8) -> None:
    """Compare the arrays of two trees in the order of their leaves."""
    leaves, expected_leaves = jax.tree.leaves(actual), jax.tree.leaves(expected)
    assert len(leaves) == len(expected_leaves) > 0
    for a, b in zip(leaves, expected_leaves, strict=True):
        assert_allclose(a, b, rtol=rtol, atol=atol)


# -- the update


@pytest.mark.parametrize("settings", RULES.values(), ids=RULES)
def test_a_scanned_loop_has_the_losses_and_params_of_solver(net: caffejax.Net, settings: str) -> None:
    """With Dropout, running statistics, iter_size, warm-up and the settings of forks: the same keys and numbers."""
    iter_size = 2 if "iter_size" in settings else 1
    batches = draw_batches(iter_size)
    solver = caffejax.Solver(
        f"net_param {{ {NET} }} {settings} random_seed: 3 " + ("" if "max_iter" in settings else "max_iter: 99"),
        data={name: array.reshape(-1, *array.shape[2:]) for name, array in batches.items()},
    )
    tx, start = caffejax.optimizer(solver.param, net), solver.train_state
    first = jax.tree.map(jnp.copy, (start.params, start.state, tx.init(start.params)))
    key = jnp.copy(start.key)

    def step(carry: Any, inputs: Any) -> tuple[Any, jax.Array]:
        params, state, opt_state = carry
        iteration, passes = inputs
        total, losses = jax.tree.map(jnp.zeros_like, params), []
        for i in range(iter_size):
            batch = {name: array[i] for name, array in passes.items()}
            pass_key = caffejax.iteration_key(key, iteration, i)
            (loss, outputs), grads = jax.value_and_grad(net.loss, has_aux=True)(params, state, batch, pass_key)
            total, state = jax.tree.map(lambda t, g: t + g / iter_size, total, grads), outputs.state
            losses.append(loss)
        updates, opt_state = tx.update(total, opt_state, params)
        return (optax.apply_updates(params, updates), state, opt_state), jnp.mean(jnp.stack(losses))

    split = {name: array.reshape(N, iter_size, *array.shape[1:]) for name, array in batches.items()}
    (params, _, opt_state), losses = jax.jit(lambda c, x: jax.lax.scan(step, c, x))(first, (jnp.arange(N), split))
    expected = []
    for _ in range(N):
        solver.step(1)
        expected.append(solver.smoothed_loss)
    assert_allclose(losses, expected, rtol=1e-5)
    assert_equal(params, solver.train_state.params, rtol=1e-3, atol=1e-5)
    assert opt_state.count == N
    assert opt_state.count.dtype == jnp.int32
    solver.close()


def test_the_gradient_is_the_mean_of_the_passes_and_is_clipped_as_their_sum(params: Any, net: caffejax.Net) -> None:
    """NumPy's numbers: Caffe clips the sum to the limit, and then divides it."""
    settings = 'base_lr: 1 lr_policy: "fixed" clip_gradients: 6 iter_size: 3'
    grads = jax.tree.map(lambda p: jnp.full(p.shape, 0.5), params)
    count = sum(p.size for p in jax.tree.leaves(params))
    updates, _ = run_update(caffejax.optimizer(settings, net), grads, params)
    norm_of_sum = 3 * 0.5 * np.sqrt(count)
    conv, frozen = updates["zconv"]["weight"], updates["frozen"]["weight"]
    assert_allclose(conv, np.full(conv.shape, -3 * 0.5 * 6 / norm_of_sum / 3), rtol=1e-6)
    assert_array_equal(frozen, np.zeros(frozen.shape))


def run_update(tx: Any, grads: Any, params: Any) -> Any:
    return tx.update(grads, tx.init(params), params)


def test_norms_are_summed_in_the_order_of_the_net() -> None:
    """In float32 2**24 + 1 is 2**24, so the sum of squares depends on the order, and names may sort otherwise."""
    layers = ["z", "a", "b", "c", "d"]
    multipliers = {(layer, "weight"): Multipliers(1, 1) for layer in layers}
    tx = caffe_optimizer(caffejax.read_solver('base_lr: 1 lr_policy: "fixed" clip_gradients: 2048'), multipliers)
    grads = {layer: {"weight": jnp.array([4096.0 if layer == "z" else 1.0])} for layer in layers}
    updates, _ = tx.update(grads, tx.init(grads), rate=1.0)
    assert updates["z"]["weight"] == -2048
    assert updates["a"]["weight"] == -0.5


def test_extra_arguments_replace_rate_and_count(params: Any, net: caffejax.Net, gradients: list[Any]) -> None:
    settings = 'type: "Adam" base_lr: 0.1 momentum: 0.9 momentum2: 0.99 lr_policy: '
    own, given = (caffejax.optimizer(f"{settings} {p}", net) for p in ('"exp" gamma: 0.5', '"fixed"'))
    state = own.init(params)._replace(count=jnp.int32(4))
    expected, new_state = own.update(gradients[0], state, params)
    rate = 0.1 * 0.5**4
    updates, other_state = given.update(gradients[0], given.init(params), params, rate=rate, iteration=4, value=3.0)
    assert_equal(updates, expected)
    assert new_state.count == other_state.count == 5


# -- containers


def test_it_is_a_transformation_like_optaxs(net: caffejax.Net, params: Any, gradients: list[Any]) -> None:
    tx = caffejax.optimizer(SGD, net)
    expected, state = run(tx, params, gradients)
    assert isinstance(tx, optax.GradientTransformation)
    assert_equal(run(optax.chain(optax.identity(), tx), params, gradients)[0], expected)
    assert_equal(run(optax.chain(tx, optax.scale(0.0)), params, gradients)[0], params)

    doubled = [jax.tree.map(lambda g, sign=sign: g * sign, g) for g in gradients for sign in (0.5, 1.5)]
    steps = optax.MultiSteps(tx, every_k_schedule=2)
    assert_equal(run(steps.gradient_transformation(), params, doubled)[0], expected, atol=1e-6)

    flax_state = FlaxTrainState.create(apply_fn=net.apply, params=params, tx=tx)
    for g in gradients:
        flax_state = flax_state.apply_gradients(grads=g)
    assert_equal(flax_state.params, expected)

    hyperparams = optax.inject_hyperparams(optax.sgd)(caffejax.lr_schedule(SGD))
    assert_equal(run(hyperparams, params, gradients[:1])[1].hyperparams["learning_rate"], 0.1)
    assert str(jax.tree.structure(state.history[0])) == str(jax.tree.structure(params))


def test_a_part_of_the_params_keeps_its_multipliers(net: caffejax.Net, params: Any, gradients: list[Any]) -> None:
    """By masked, multi_transform and dicts: each array is found by its path, and the rest stays or follows another."""
    tx = caffejax.optimizer(SGD, net)
    expected, _ = run(tx, params, gradients)
    only_ip = {layer: layer == "ip" for layer in params}
    masked, _ = run(optax.chain(optax.masked(tx, only_ip), zero_others(only_ip)), params, gradients)
    assert_equal(masked["ip"], expected["ip"])
    assert_equal(masked["zconv"], params["zconv"])

    labels = {layer: "caffe" if layer == "zconv" else "adam" for layer in params}
    mixed, _ = run(optax.multi_transform({"caffe": tx, "adam": optax.adam(1e-3)}, labels), params, gradients)
    assert_equal(mixed["zconv"], expected["zconv"])
    assert_equal(mixed["ip"], run(optax.adam(1e-3), params, gradients)[0]["ip"])

    part, _ = run(tx, {"ip": params["ip"]}, [{"ip": g["ip"]} for g in gradients])
    assert_equal(part, expected["ip"])
    nested, _ = run(tx, {"a": [{"b": params}]}, [{"a": [{"b": g}]} for g in gradients])
    assert_equal(nested, expected)


def zero_others(mask: Any) -> optax.GradientTransformation:
    return optax.masked(optax.set_to_zero(), jax.tree.map(lambda m: not m, mask))


def test_flax_modules_are_trained(net: caffejax.Net, params: Any) -> None:
    """nnx.Optimizer over a CaffeModule, and the collections of linen: the params of a plain loop."""
    tx = caffejax.optimizer(SGD, net)
    variables = caffejax.Variables(params, net.init(jax.random.key(0)).state)
    model = CaffeModule(net, variables, rngs=nnx.Rngs(0))
    model.eval()  # no Dropout
    optimizer = nnx.Optimizer(model, tx, wrt=nnx.Param)
    batch = {name: array[0] for name, array in draw_batches().items()}

    @nnx.jit
    def train(model: Any, optimizer: Any) -> Any:
        grads = nnx.grad(lambda m: m.loss(batch)[0])(model)
        optimizer.update(model, grads)
        return nnx.to_pure_dict(grads)["weights"]

    gradients = [train(model, optimizer) for _ in range(3)]
    expected, _ = run(tx, params, gradients)
    assert_equal(nnx.as_pure(nnx.state(model, nnx.Param)), expected)
    assert optimizer.opt_state.count[...] == 3

    keys = {"params": jax.random.key(0), "dropout": jax.random.key(1)}
    collection = to_linen(net, variables).init(keys, batch)["params"]
    assert_equal(run(tx, collection, [collection])[0], run(tx, params, [params])[0])


def test_without_a_net_it_trains_any_model_as_optax_does() -> None:
    """Where Caffe's rule is one of optax's: momentum with a fixed rate, decay before it and clipping before that."""
    random = np.random.default_rng(0)
    params = {"dense": {"kernel": random.normal(size=(3, 4)), "bias": random.normal(size=4)}, "scale": 1.0}
    params = jax.tree.map(lambda a: jnp.asarray(a, jnp.float32), params)
    settings = 'type: "SGD" base_lr: 0.1 momentum: 0.9 weight_decay: 0.01 lr_policy: "fixed" clip_gradients: 1'
    ours = caffejax.optimizer(settings, None)
    theirs = optax.chain(optax.clip_by_global_norm(1), optax.add_decayed_weights(0.01), optax.sgd(0.1, momentum=0.9))
    results = []
    for transformation in (ours, theirs):
        trained, state = params, transformation.init(params)
        for seed in range(5):
            draw = np.random.default_rng(seed).normal
            grads = jax.tree.map(lambda a, draw=draw: jnp.asarray(draw(size=a.shape), jnp.float32), params)
            updates, state = transformation.update(grads, state, trained)
            trained = optax.apply_updates(trained, updates)
        results.append(trained)
    jax.tree.map(lambda a, b: assert_allclose(a, b, rtol=1e-5), *results)


@pytest.mark.parametrize("rule", ["SGD", "Adam"])
def test_the_state_goes_through_orbax(
    net: caffejax.Net, params: Any, gradients: list[Any], rule: str, tmp_path: Path
) -> None:
    tx = caffejax.optimizer(RULES[rule], net)
    expected, _ = run(tx, params, gradients)
    half, state = run(tx, params, gradients[:3])
    trees = {"params": half, "opt_state": state}
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(tmp_path / "c", trees)
        checkpointer.wait_until_finished()
        restored = checkpointer.restore(tmp_path / "c", jax.tree.map(jnp.zeros_like, trees))
    new_params, new_state = restored["params"], restored["opt_state"]
    for g in gradients[3:]:
        updates, new_state = tx.update(g, new_state, new_params)
        new_params = optax.apply_updates(new_params, updates)
    assert_equal(new_params, expected)


def test_a_solvers_state_continues_in_a_loop_of_ones_own(net: caffejax.Net, gradients: list[Any]) -> None:
    data = {name: array.reshape(-1, *array.shape[2:]) for name, array in draw_batches().items()}
    solver = caffejax.Solver(f"net_param {{ {NET} }} {SGD} max_iter: 9", data=data)
    solver.step(4)
    state = solver.train_state
    tx = caffejax.optimizer(solver.param, net)
    assert str(jax.tree.structure(state.opt_state)) == str(jax.tree.structure(tx.init(state.params)))
    assert state.opt_state.count == 4
    updates, _ = tx.update(gradients[0], state.opt_state, state.params)
    trees = updates, gradients[0], state.opt_state.history[0], state.params
    for u, g, h, p in zip(*(tree["ip"].values() for tree in trees), strict=True):
        assert_allclose(u, -(0.05 * (g + 0.01 * p) + 0.9 * h), rtol=1e-5)
        assert np.any(h)
    solver.close()


# -- errors


def test_bad_arguments_are_named(net: caffejax.Net, params: Any, gradients: list[Any], tmp_path: Path) -> None:
    tx = caffejax.optimizer(SGD, net)
    with pytest.raises(caffejax.SolverError, match=r"'head/kernel' is no param of the net.*optax\.multi_transform"):
        tx.init({**params, "head": {"kernel": jnp.ones(3)}})
    with pytest.raises(caffejax.SolverError, match="'ip/7' is no param"):
        tx.update({"ip": {7: jnp.ones(3)}}, tx.init(params), params)
    with pytest.raises(ValueError, match=r"call update\(grads, state, params\)"):
        tx.update(gradients[0], tx.init(params))
    plain = caffejax.optimizer('base_lr: 0.1 lr_policy: "fixed" momentum: 0.9', net)
    plain.update(gradients[0], plain.init(params))  # nothing needs the params
    with pytest.raises(caffejax.SolverError, match=r"net must be a caffejax\.Net, not str"):
        caffejax.optimizer(SGD, NET)  # type: ignore[arg-type]
    path = tmp_path / "solver.prototxt"
    path.write_text('type: "Sgd" base_lr: 0.1 lr_policy: "steps"')
    for make in (lambda: caffejax.optimizer(path, net), lambda: caffejax.lr_schedule(path)):
        with pytest.raises(caffejax.SolverError) as info:
            make()
        assert [p.file for p in info.value.problems] == [str(path)] * 2
    with pytest.raises(caffejax.SchemaError, match="no such file"):
        caffejax.lr_schedule(tmp_path / "absent.prototxt")


@pytest.mark.parametrize(
    "policy",
    ['"plateau" gamma: 0.1 plateau_winsize: 3', '"stepearly" gamma: 0.1 stepearly: 2 test_interval: 5'],
    ids=["plateau", "stepearly"],
)
def test_policies_of_losses_and_tests_say_to_use_solver(net: caffejax.Net, policy: str) -> None:
    settings = f"base_lr: 0.1 lr_policy: {policy}"
    for make in (lambda: caffejax.optimizer(settings, net), lambda: caffejax.lr_schedule(settings)):
        with pytest.raises(caffejax.SolverError, match=r"depends on losses or tests.*caffejax\.Solver"):
            make()


# -- schedules


def setting(x: float) -> float:
    """Return a setting as the prototxt's message stores it."""
    return float(np.float32(x))


def root(x: np.ndarray, power: float) -> np.ndarray:
    """Return the power of x, or NaN where x is negative, as C++ does."""
    return np.where(x >= 0, np.maximum(x, 0) ** power, np.nan)


POLICIES: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "fixed": ('"fixed"', lambda i: 0.03 + 0 * i),
    "step": ('"step" gamma: 0.1 stepsize: 1000', lambda i: 0.03 * setting(0.1) ** (i // 1000)),
    "many steps": ('"step" gamma: 0.9999 stepsize: 3', lambda i: 0.03 * setting(0.9999) ** (i // 3)),
    "step without gamma": ('"step" stepsize: 5', lambda i: 0.03 * (i < 5)),
    "exp": ('"exp" gamma: 0.99995', lambda i: 0.03 * setting(0.99995) ** i),
    "growing exp": ('"exp" gamma: 1.0001', lambda i: 0.03 * setting(1.0001) ** i),
    "constant exp": ('"exp" gamma: 1', lambda i: 0.03 + 0 * i),
    "multistep": (
        '"multistep" gamma: 0.3 stepvalue: 10 stepvalue: 10 stepvalue: 90000',
        lambda i: 0.03 * setting(0.3) ** ((i >= 10).astype(int) + (i >= 11) + (i >= 90000)),
    ),
    "multistep without steps": ('"multistep" gamma: 0.3', lambda i: 0.03 + 0 * i),
    "inv": ('"inv" gamma: 0.0001 power: 0.75', lambda i: 0.03 * (1 + setting(1e-4) * i) ** -0.75),
    "sigmoid": ('"sigmoid" gamma: 0.001 stepsize: 50000', lambda i: 0.03 / (1 + np.exp(setting(0.001) * (50000 - i)))),
    "sigmoid of 0": ('"sigmoid" stepsize: 50000', lambda i: 0.015 + 0 * i),
    "sigmoid_inv": (
        '"sigmoid_inv" gamma: 0.01 stepsize: 300',
        lambda i: 0.03 / (1 + np.exp(np.minimum(setting(0.01) * (i - 300), 80))),
    ),
    "sharp sigmoid": (
        '"sigmoid" gamma: 30 stepsize: 300',
        lambda i: 0.03 / (1 + np.exp(np.minimum(-30.0 * (i - 300), 90))),
    ),
    "poly": ('"poly" power: 0.9 max_iter: 120000', lambda i: 0.03 * root(1 - i / 120000, 0.9)),
    "linear poly": (
        '"poly" power: 1 max_iter: 100000 min_lr: 0.0005',
        lambda i: setting(0.0005) + (0.03 - setting(0.0005)) * np.maximum(1 - i / 100000, 0),
    ),
    "multifixed": (
        '"multifixed" stagelr: 0.1 stagelr: 0.02 stagelr: 0.3 stageiter: 3 stageiter: 500 stageiter: 9000',
        lambda i: np.array([0.1, 0.02, 0.3])[np.minimum((i > 3).astype(int) + (i > 500), 2)],
    ),
    "warm-up": (
        '"step" gamma: 0.1 stepsize: 300 warmup_iter: 250 warmup_start_lr: 0.001',
        lambda i: np.where(i < 250, 0.001 + (0.03 - 0.001) * i / 250, 0.03 * setting(0.1) ** (i // 300)),
    ),
    "ramp-up": (
        '"poly" power: 2 max_iter: 150000 rampup_interval: 777 rampup_lr: 0.002 min_lr: 0.001',
        lambda i: np.where(
            i < 777, 0.002 + (0.03 - 0.002) * (i / 777) ** 2, 0.001 + (0.03 - 0.001) * (1 - i / 150000) ** 2
        ),
    ),
    "both": (
        '"exp" gamma: 0.999 rampup_interval: 10 warmup_iter: 20 min_lr: 0.01',
        lambda i: np.maximum(
            0.01, np.where(i < 10, 0.03 * (i / 10) ** 2, np.where(i < 20, 0.03 * i / 20, 0.03 * setting(0.999) ** i))
        ),
    ),
}
EXACT = ("fixed", "step", "many steps", "exp", "multistep", "inv", "multifixed", "warm-up", "both")
ITERATIONS = np.unique(
    np.concatenate(
        [
            np.arange(1100),
            np.random.default_rng(0).integers(0, 130000, 3000),
            [89999, 90000, 99999, 100000, 119999, 120000],
        ]
    )
)


@pytest.mark.parametrize("name", POLICIES)
def test_a_schedule_has_the_rates_of_solver_and_of_double_arithmetic(name: str) -> None:
    text, formula = POLICIES[name]
    settings = f"base_lr: 0.03 lr_policy: {text}"
    schedule, host = caffejax.lr_schedule(settings), rate_schedule(caffejax.read_solver(settings))
    rates, exact = np.asarray(jax.jit(schedule)(ITERATIONS)), formula(ITERATIONS)
    assert rates.dtype == np.float32
    assert rates.shape == ITERATIONS.shape
    # 6e-8: decimal numbers of the settings are rounded to float32
    assert_allclose(rates, exact, rtol=3e-7 + 6e-8, atol=1e-36)
    # Caffe's own float32 arithmetic loses some digits in exp, and in the difference of `poly`
    assert_allclose(rates, [host(int(i)) for i in ITERATIONS], rtol=3e-7 if name in EXACT else 1e-5, atol=3e-9)
    for n in (0, 3, 1000):  # a single number, eagerly
        assert_allclose(schedule(int(ITERATIONS[n])), rates[n], rtol=3e-7)
    _, scanned = jax.lax.scan(lambda i, _: (i + 1, schedule(i)), jnp.int32(0), length=30)
    assert_allclose(scanned, exact[:30], rtol=3e-7 + 6e-8, atol=1e-36)


def test_iterations_are_counted_to_the_end_of_int32() -> None:
    last = 2**31 - 1
    for policy in ('"exp" gamma: 0.99999994', '"step" gamma: 0.5 stepsize: 500000000', '"inv" gamma: 1e-4 power: 0.5'):
        settings = f"base_lr: 1 lr_policy: {policy}"
        expected = float(rate_schedule(caffejax.read_solver(settings))(last))
        assert_allclose(jax.jit(caffejax.lr_schedule(settings))(last), expected, rtol=3e-7, atol=1e-37)


def test_keys_of_iterations_are_fold_ins() -> None:
    key = jax.random.key(5)
    expected = jax.random.key_data(jax.random.fold_in(jax.random.fold_in(key, 7), 2))
    for make in (caffejax.iteration_key, jax.jit(caffejax.iteration_key)):
        assert_array_equal(jax.random.key_data(make(key, 7, 2)), expected)
