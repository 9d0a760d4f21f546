"""Solver settings of forks: followed, ignored with a warning, or refused."""

import logging
from pathlib import Path
from typing import Any

import numpy as np
import optax
import pytest

from caffejax.base.errors import SolverError
from caffejax.core.schema import read_solver
from caffejax.core.solver import rate_schedule, solver_param
from caffejax.core.solver.caffe_optimizer import Multipliers, caffe_optimizer
from caffejax.core.solver.lr_schedules import POLICIES, Plateau, StepEarly

SOLVERS = Path(__file__).parents[4] / "shared" / "corpus" / "solvers"
BASE = 'net: "net.prototxt" base_lr: 0.5 max_iter: 100 '


def compute_rates(text: str, *iterations: int) -> list[float]:
    param = read_solver(BASE + text + "\n")
    solver_param.check_solver(param)
    schedule = rate_schedule(param)
    return [float(schedule(i)) for i in iterations]


def test_rampup_is_quadratic() -> None:
    result = compute_rates('lr_policy: "fixed" rampup_lr: 0.1 rampup_interval: 10', 0, 5, 9, 10, 11)
    np.testing.assert_allclose(result, [0.1, 0.1 + 0.4 * 0.25, 0.1 + 0.4 * 0.81, 0.5, 0.5], rtol=1e-6)


def test_warmup_is_linear() -> None:
    result = compute_rates(
        'lr_policy: "step" gamma: 0.1 stepsize: 8 warmup_iter: 4 warmup_start_lr: 0.1', 0, 1, 3, 4, 8
    )
    np.testing.assert_allclose(result, [0.1, 0.2, 0.4, 0.5, 0.05], rtol=1e-6)


def test_no_rate_is_less_than_min_lr_and_poly_ends_at_min_lr() -> None:
    np.testing.assert_allclose(
        compute_rates('lr_policy: "exp" gamma: 0.5 min_lr: 0.1', 0, 1, 2, 3), [0.5, 0.25, 0.125, 0.1]
    )
    result = compute_rates('lr_policy: "poly" power: 2 min_lr: 0.1', 0, 50, 100)
    np.testing.assert_allclose(result, [0.5, 0.4 * 0.25 + 0.1, 0.1], rtol=1e-6)


def test_multifixed_has_a_rate_for_each_stage() -> None:
    stages = 'lr_policy: "multifixed" stagelr: 0.1 stagelr: 0.2 stagelr: 0.3 stageiter: 5 stageiter: 10 stageiter: 20'
    np.testing.assert_allclose(
        compute_rates(stages, 0, 5, 6, 10, 11, 20, 21), [0.1, 0.1, 0.2, 0.2, 0.3, 0.3, 0.3], rtol=1e-6
    )
    with pytest.raises(SolverError, match="same number of stagelr and stageiter"):
        compute_rates('lr_policy: "multifixed" stagelr: 0.1', 0)


def test_plateau_reduces_the_rate_when_the_loss_stops_falling() -> None:
    param = read_solver(BASE + 'lr_policy: "plateau" gamma: 0.1 plateau_winsize: 3 plateau_winsize: 2\n')
    solver_param.check_solver(param)
    schedule = rate_schedule(param)
    assert isinstance(schedule, Plateau)
    losses = {1: 5.0, 2: 4.0, 3: 4.0, 4: 4.5, 5: 4.1, 6: 4.1, 7: 4.1, 8: 3.0, 9: 9.0, 10: 9.0}
    result = {}
    for iteration, loss in losses.items():
        schedule.record_loss(iteration, loss)
        result[iteration] = float(schedule(iteration))
    # the least loss is of iteration 2: three later it falls; two later again; then there is no window left
    expected = {i: 0.5 if i < 5 else 0.05 if i < 7 else 0.005 for i in losses}
    np.testing.assert_allclose(list(result.values()), list(expected.values()), rtol=1e-6)


@pytest.mark.parametrize("policy", ["clip", "scale"])
def test_larc_computes_a_rate_for_each_blob(policy: str) -> None:
    param = read_solver(
        BASE + f'lr_policy: "fixed" momentum: 0.9 weight_decay: 0.1 larc: true larc_policy: "{policy}" larc_eta: 0.2\n'
    )
    solver_param.check_solver(param)
    rng = np.random.default_rng(0)
    params: Any = {
        "a": {"weight": rng.normal(size=(3, 4)).astype("f"), "bias": np.zeros(3, "f")},
        "b": {"weight": rng.normal(size=5).astype("f")},
    }
    grads: Any = {
        "a": {"weight": rng.normal(size=(3, 4)).astype("f"), "bias": np.ones(3, "f")},
        "b": {"weight": rng.normal(size=5).astype("f")},
    }
    multipliers = {
        ("a", "weight"): Multipliers(2, 1),
        ("a", "bias"): Multipliers(1, 0),
        ("b", "weight"): Multipliers(0, 1),
    }
    optimizer = caffe_optimizer(param, multipliers)
    updates, _ = optimizer.update(grads, optimizer.init(params), params, rate=0.5, iteration=0)
    assert isinstance(optimizer, optax.GradientTransformationExtraArgs)

    w, g = params["a"]["weight"], grads["a"]["weight"]
    local_rate = (1 - 0.9) * 0.2 * np.linalg.norm(w) / np.linalg.norm(g)  # lr_mult 2 does not count
    rate = min(0.5, local_rate) if policy == "clip" else 0.5 * local_rate
    np.testing.assert_allclose(updates["a"]["weight"], -rate * (g + 0.1 * w), rtol=1e-5)
    np.testing.assert_allclose(updates["a"]["bias"], -0.5 * np.ones(3), rtol=1e-6)  # a blob of zeros: the rate itself
    np.testing.assert_array_equal(updates["b"]["weight"], 0)


def test_stepearly_reduces_the_rate_when_the_accuracy_stops_rising() -> None:
    param = read_solver(BASE + 'lr_policy: "stepearly" gamma: 0.1 stepearly: 2 test_interval: 1\n')
    solver_param.check_solver(param)
    schedule = rate_schedule(param)
    assert isinstance(schedule, StepEarly)
    result = []
    for accuracy in [0.5, 0.6, 0.6, 0.55, 0.6, 0.7, 0.7, 0.7]:
        schedule.record_test(accuracy)
        result.append(float(schedule(0)))
    np.testing.assert_allclose(result, [0.5, 0.5, 0.5, 0.05, 0.05, 0.05, 0.05, 0.005], rtol=1e-6)
    with pytest.raises(SolverError, match="needs a positive stepearly"):
        compute_rates('lr_policy: "stepearly" gamma: 0.1', 0)


def test_sigmoid_inv_falls_as_sigmoid_rises() -> None:
    settings = "gamma: 0.5 stepsize: 4"
    rising_rates, falling_rates = (
        compute_rates(f"lr_policy: {policy} {settings}", 0, 3, 4, 9) for policy in ("sigmoid", "sigmoid_inv")
    )
    np.testing.assert_allclose(falling_rates, 0.5 - np.asarray(rising_rates), rtol=1e-5)


def train_blob(text: str, steps: int = 3) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Return weights (steps + 1, 4) and gradients of a blob with lr_mult 2 and decay_mult 0.5, trained by a solver."""
    param = read_solver(BASE + f"{text}\n")
    solver_param.check_solver(param)
    schedule, rng = rate_schedule(param), np.random.default_rng(1)
    optimizer = caffe_optimizer(param, {("a", "weight"): Multipliers(2.0, 0.5)})
    weights, grads = [rng.normal(size=4).astype("f")], list(rng.normal(size=(steps, 4)).astype("f"))
    state = optimizer.init({"a": {"weight": weights[0]}})
    for i, g in enumerate(grads):
        params: Any = {"a": {"weight": weights[-1]}}
        updates, state = optimizer.update({"a": {"weight": g}}, state, params, rate=schedule(i), iteration=i)
        weights.append(np.asarray(optax.apply_updates(params, updates)["a"]["weight"]))
    return weights, grads


def compute_sgd_weights(w: np.ndarray, grads: list[np.ndarray], rate: Any, momentum: Any, decay: Any) -> np.ndarray:
    h = np.zeros_like(w)
    for i, g in enumerate(grads):
        h = momentum(i) * h + 2 * rate(i) * (g + 0.5 * decay(i) * w)
        w = w - h
    return w


@pytest.mark.parametrize(
    ("text", "rate", "momentum", "decay"),
    [
        ('momentum: 0.5 momentum_policy: "poly" max_momentum: 0.9 momentum_power: 2', lambda i: 0.5,
         lambda i: 0.5 + 0.4 * (i / 100) ** 2, lambda i: 0),
        ('momentum_policy: "opt"', lambda i: 0.5, lambda i: (1 - 0.5 * 0.5**0.5) ** 2, lambda i: 0),
        ('momentum_policy: "opt" max_momentum: 0.2', lambda i: 0.5, lambda i: 0.2, lambda i: 0),
        ('weight_decay: 0.1 weight_decay_policy: "poly" max_weight_decay: 1 weight_decay_power: 0.5', lambda i: 0.5,
         lambda i: 0, lambda i: 0.1 + 0.9 * (i / 100) ** 0.5),
        ("momentum: 0.5 warmup_iter: 2 warmup_start_lr: 0.1", lambda i: [0.1, 0.3, 0.5][i],
         lambda i: [0, 0.5 * 0.3 / 0.1, 0.5][i], lambda i: 0),
        ("weight_decay: 0.1 regularization_type: NONE", lambda i: 0.5, lambda i: 0, lambda i: 0),
    ],
)  # fmt: skip
def test_policies_of_momentum_and_weight_decay(text: str, rate: Any, momentum: Any, decay: Any) -> None:
    weights, grads = train_blob(f"lr_policy: fixed type: SGD {text}")
    np.testing.assert_allclose(weights[-1], compute_sgd_weights(weights[0], grads, rate, momentum, decay), rtol=1e-5)


def test_sag_follows_the_mean_of_the_gradients() -> None:
    weights, grads = train_blob('lr_policy: "fixed" type: "SAG" momentum: 0.5')
    mean = 0.125 * grads[0] + 0.25 * grads[1] + 0.5 * grads[2]
    np.testing.assert_allclose(weights[3], weights[2] - mean, rtol=1e-5)


def test_the_decay_of_adamw_is_decoupled_from_the_gradient() -> None:
    adamw, _ = train_blob("lr_policy: fixed type: ADAMW adamw_decay: 0.1", 1)
    adam, _ = train_blob('lr_policy: "fixed" type: "Adam"', 1)
    np.testing.assert_allclose(adamw[1], adam[1] - 0.5 * 2 * 0.1 * 0.5 * adam[0], rtol=1e-5)


def test_local_lr_auto_computes_a_rate_for_each_blob() -> None:
    weights, (g,) = train_blob('lr_policy: "fixed" weight_decay: 0.2 local_lr_auto: true local_gw_ratio: 0.3', 1)
    weight_norm, gradient_norm = np.linalg.norm(weights[0]), np.linalg.norm(g)
    rate = 0.5 * 0.3 * weight_norm / (gradient_norm + 0.2 * weight_norm)
    np.testing.assert_allclose(weights[1], weights[0] - rate * (g + 0.1 * weights[0]), rtol=1e-5)


def test_weights_are_scaled_and_clipped_after_the_update() -> None:
    plain, _ = train_blob('lr_policy: "fixed"', 1)
    scaled, _ = train_blob('lr_policy: "fixed" clip_weights: 0.5', 1)
    np.testing.assert_allclose(scaled[1], plain[1] * 0.5 / np.linalg.norm(plain[1]), rtol=1e-5)
    clamped, _ = train_blob('lr_policy: "fixed" clamp_weights_lower: -0.1 clamp_weights_upper: 0.2', 1)
    np.testing.assert_allclose(clamped[1], np.clip(plain[1], -0.1, 0.2), rtol=1e-5)


@pytest.mark.parametrize(
    ("text", "name", "value"),
    [
        ("type: RMSPROP", "type", "RMSProp"),
        ("type: ADAMW", "type", "AdamW"),
        ("ap_version: integral", "ap_version", "Integral"),
    ],
)
def test_mycaffes_names_are_converted_to_caffes(text: str, name: str, value: str) -> None:
    param = read_solver(BASE + f"{text} lr_policy: fixed test_compute_loss: False\n")
    solver_param.check_solver(param)
    assert getattr(param, name) == value


def test_all_unsupported_settings_are_reported_together() -> None:
    text = BASE + 'lr_policy: "fixed" momentum_policy: "poli" gan_solver: true larc: true larc_policy: "other"\n'
    with pytest.raises(SolverError) as exc_info:
        solver_param.check_solver(read_solver(text))
    messages = [p.message.split(";")[0] for p in exc_info.value.problems]
    assert messages == [
        "setting gan_solver (of synopsys) is not supported",
        "unknown momentum_policy 'poli'",
        "unknown larc_policy 'other'",
    ]


def test_settings_without_effect_on_training_cause_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        param = read_solver(BASE + 'lr_policy: "fixed" solver_data_type: FLOAT16 device_id: [2, 3]\n')
        solver_param.check_solver(param)
    assert param.device_id == 2
    assert "device_id: only the first value of the list is used" in caplog.text
    assert "solver_data_type (of nvidia) is ignored: it is a precision" in caplog.text


def test_test_iter_without_a_test_net_or_interval_has_no_effect() -> None:
    text = 'train_net: "net.prototxt" base_lr: 1 lr_policy: "fixed" test_iter: 100 test_interval: %d\n'
    param = read_solver(text % 0)
    solver_param.check_solver(param)
    assert solver_param.read_test_nets(param, None) == []
    with pytest.raises(SolverError, match="once per test net"):
        solver_param.check_solver(read_solver(text % 10))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('lr_policy: "sigmoid"', "stepsize must be positive, but is not set; set stepsize"),
        ('lr_policy: "sigmoid" stepsize: 0', "stepsize must be positive, but is 0$"),
        ('lr_policy: "fixed" test_iter: 0', "test_interval must be positive .* remove test_iter to train without"),
        ('lr_policy: "fixed" test_iter: 3', "test_interval must be positive if there are test nets, but is 0$"),
    ],
)
def test_missing_settings_with_defaults_in_mycaffe_are_reported(text: str, message: str) -> None:
    with pytest.raises(SolverError, match=message):
        solver_param.check_solver(read_solver(f'net: "net.prototxt" base_lr: 1 {text}'))


def test_a_sigmoid_far_from_its_step_is_0() -> None:
    param = read_solver('base_lr: 2 lr_policy: "sigmoid" gamma: 0.1 stepsize: 100000')
    rate = POLICIES["sigmoid"](param)
    assert [rate(i) for i in (0, 100000, 200000)] == [0, 1, 2]


@pytest.mark.skipif(not SOLVERS.is_dir(), reason=f"needs the corpus of public solvers in {SOLVERS}, which is absent")
def test_all_public_solvers_are_valid() -> None:
    files = sorted(SOLVERS.glob("*.prototxt"))
    assert len(files) == 82
    for file in files:
        solver_param.check_solver(read_solver(file), str(file))
