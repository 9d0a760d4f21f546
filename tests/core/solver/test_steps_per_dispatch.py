"""Several iterations per dispatch give the same log, parameters and data position as single iterations."""

import logging
import re
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from caffejax.base.errors import SolverError
from caffejax.core.solver import Solver

CONFIGS = Path(__file__).parents[3] / "configs"
GOLDEN = Path(__file__).parents[2] / "golden"
NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e[+-]\d+)?")
DUMMY = """
layer { name: "data" type: "DummyData" top: "data" top: "label"
  dummy_data_param { shape { dim: 4 dim: 6 } shape { dim: 4 }
    data_filler { type: "gaussian" } data_filler { type: "constant" value: 1 } } }
layer { name: "ip" type: "InnerProduct" bottom: "data" top: "ip"
  inner_product_param { num_output: 3 weight_filler { type: "xavier" } } }
layer { name: "bn" type: "BatchNorm" bottom: "ip" top: "ip" }
layer { name: "drop" type: "Dropout" bottom: "ip" top: "ip" }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }
"""


def make_solver(folder: Path, settings: str, net: str = DUMMY, **options: Any) -> Solver:
    text = f'net_param {{ {net} }} base_lr: 0.05 lr_policy: "step" stepsize: 3 gamma: 0.7 momentum: 0.9 '
    if "net_param" in settings:
        text = 'base_lr: 0.05 lr_policy: "fixed" '
    return Solver(f'{text} random_seed: 3 snapshot_prefix: "{folder / "snap"}" {settings}', **options)


def train_to_end(solver: Solver, caplog: pytest.LogCaptureFixture) -> tuple[list[str], Any]:
    """Return the lines of the log without speeds, and (train state, position in the data, smoothed loss)."""
    caplog.clear()
    with caplog.at_level(logging.INFO, logger="caffejax"):
        solver.solve()
    solver.close()
    lines = [re.sub(r"\(\S+ iter/s, \S+s/", "(", r.getMessage()) for r in caplog.records]
    state = solver.train_state.replace(key=jax.random.key_data(solver.train_state.key))
    return lines, (jax.tree.map(np.asarray, state), solver.loader.get_state(), solver.smoothed_loss)


def assert_equal_to_single_steps(
    folder: Path, settings: str, caplog: pytest.LogCaptureFixture, net: str = DUMMY
) -> None:
    (lines, end), (single_step_lines, single_step_end) = (
        train_to_end(make_solver(folder / str(n), settings, net, steps_per_dispatch=n), caplog) for n in (4, 1)
    )
    assert [NUMBER.sub("#", line) for line in lines] == [NUMBER.sub("#", line) for line in single_step_lines]
    for line, single_step_line in zip(lines, single_step_lines, strict=True):
        if "snap" not in line:
            np.testing.assert_allclose(
                *([float(n) for n in NUMBER.findall(s)] for s in (line, single_step_line)), rtol=1e-4
            )
    for a, b in zip(jax.tree.leaves(end), jax.tree.leaves(single_step_end), strict=True):
        if not isinstance(a, str):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "settings",
    [
        "max_iter: 22",
        "max_iter: 23 display: 5 average_loss: 3",
        'max_iter: 21 snapshot: 7 display: 10 type: "Adam"',
        "max_iter: 20 test_iter: 2 test_interval: 6 display: 4",
        "max_iter: 17 iter_size: 2 clip_gradients: 0.5 snapshot_diff: true snapshot: 9",
        "max_iter: 3",
    ],
)
def test_several_steps_equal_single_steps(settings: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert_equal_to_single_steps(tmp_path, settings, caplog)


def test_several_steps_are_one_dispatch(tmp_path: Path) -> None:
    counts = []
    solver = make_solver(tmp_path, "max_iter: 21 display: 10", steps_per_dispatch=5)
    solver.callbacks.append(lambda s: counts.append(s.iteration))
    solver.step(21)
    assert counts == [1, 6, 11, 16, 21]  # iteration 0 is displayed, and so waited for


def test_images_of_varying_sizes_are_dispatched_singly(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(GOLDEN / "data")
    net = """
      layer { name: "data" type: "ImageData" top: "data" top: "label"
        image_data_param { source: "list_var.txt" batch_size: 1 } }
      layer { name: "pool" type: "Pooling" bottom: "data" top: "pool"
        pooling_param { pool: AVE global_pooling: true } }
      layer { name: "ip" type: "InnerProduct" bottom: "pool" top: "ip" inner_product_param { num_output: 1000 } }
      layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }
    """
    assert_equal_to_single_steps(tmp_path, "max_iter: 9", caplog, net)


def test_divergence_names_its_iteration(tmp_path: Path) -> None:
    solver = make_solver(
        tmp_path, "max_iter: 40", DUMMY.replace('"gaussian"', '"gaussian" std: 1e19'), steps_per_dispatch=8
    )
    single_step_solver = make_solver(tmp_path, "max_iter: 40", DUMMY.replace('"gaussian"', '"gaussian" std: 1e19'))
    messages = []
    for s in (solver, single_step_solver):
        with pytest.raises(SolverError) as exc_info:
            s.solve()
        messages.append(str(exc_info.value))
    assert messages[0] == messages[1]
    assert "iteration" in messages[0]
