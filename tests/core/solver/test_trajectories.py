"""Training compared with Caffe's trajectories: rate, loss, scores and every parameter, iteration by iteration."""

import json
import logging
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from caffejax.core.schema import parse_text
from caffejax.core.schema.caffe_pb2 import SolverParameter
from caffejax.core.solver import Solver

GOLDEN = Path(__file__).parents[2] / "golden" / "solver"

INDEX = json.loads((GOLDEN / "index.json").read_text())
CASES = [c["case"] for c in INDEX]


def make_solver(case: str, backward: Any = "autodiff", kernels: Any = "fast", *, snapshots: bool = True) -> Solver:
    file = GOLDEN / case / "solver.prototxt"
    param = parse_text(file.read_text(), SolverParameter, file=str(file))
    if not snapshots:
        param.ClearField("snapshot")
    weights = [] if param.weights else [file.with_name("init.caffemodel")]
    return Solver(param, file=file, weights=weights, backward=backward, kernels=kernels)


@pytest.fixture(autouse=True)
def _use_temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # where snapshot_prefix points


def assert_close(actual: Any, expected: Any, rtol: float, name: str) -> None:
    scale = np.abs(expected).max()
    np.testing.assert_allclose(actual, expected, rtol=rtol, atol=rtol * scale, err_msg=name)


@pytest.mark.parametrize(("backward", "kernels"), [("autodiff", "fast"), ("rules", "fast"), ("autodiff", "reference")])
@pytest.mark.parametrize("case", CASES)
def test_training_follows_the_recorded_trajectory(case: str, backward: str, kernels: str) -> None:
    """All backward modes and kernels reach Caffe's parameters; the first combination also takes snapshots."""
    expected = dict(np.load(GOLDEN / case / "expected.npz"))
    is_adaptive = not case.startswith(("sgd", "nesterov"))
    solver = make_solver(case, backward, kernels, snapshots=(backward, kernels) == ("autodiff", "fast"))
    for k in range(24):
        np.testing.assert_allclose(solver.rate, expected["lr"][k], rtol=3e-7)
        solver.step(1)
        assert_close(solver.smoothed_loss, expected["loss"][k], 1e-4, f"loss of iteration {k}")
        for name in (n for n in expected if n.startswith(f"param/{k + 1}/")):
            _, _, layer, index = name.split("/")
            param = solver.net.graph.layer(layer).params[int(index)]
            tree = solver.train_state.params if param.spec.learnable else solver.train_state.state
            assert_close(tree[param.owner.layer][param.owner.name], expected[name], 5e-5 if is_adaptive else 1e-5, name)
    solver.close()


@pytest.mark.parametrize("case", [c for c in CASES if (GOLDEN / c / "cli_log.txt").exists()])
def test_the_log_equals_caffes(case: str, caplog: pytest.LogCaptureFixture) -> None:
    solver = make_solver(case)
    with caplog.at_level(logging.INFO, logger="caffejax"):
        solver.solve()
    solver.close()
    ours = [r.getMessage() for r in caplog.records if not r.getMessage().startswith(("Snapshotting", "Running"))]
    theirs = [line.split("] ", 1)[1] for line in (GOLDEN / case / "cli_log.txt").read_text().splitlines()]
    theirs = [line for line in theirs if not line.startswith("Snapshotting")]
    ours = ours[ours.index(theirs[0]) :]  # "Solving <net>"
    ours = [re.sub(r"\(\S+ iter/s, \S+s/", "(- iter/s, -s/", line) for line in ours]
    assert theirs[-2:] == ["Optimization Done."] * 2  # one from the solver, one from Caffe's tool
    assert len(ours) == len(theirs) - 1
    number = re.compile(r"-?\d+(?:\.\d+)?(?:e[+-]\d+)?")
    for actual, expected in zip(ours, theirs, strict=False):
        assert number.sub("#", actual) == number.sub("#", expected)
        values = [[float(n) for n in number.findall(line)] for line in (actual, expected)]
        np.testing.assert_allclose(*values, rtol=2e-4, atol=2e-6, err_msg=expected)


def test_scores_equal_the_recorded_scores(caplog: pytest.LogCaptureFixture) -> None:
    """Scores are computed before each tested iteration; each test continues in the test data."""
    case = "sgd_average_loss"
    expected = dict(np.load(GOLDEN / case / "expected.npz"))
    solver = make_solver(case)
    num_checked = 0
    for k in range(25):
        names = [n for n in expected if n.startswith(f"test/{k}/")]
        if names:
            scores = solver.test()
            for name in names:
                _, _, net, output = name.split("/")
                np.testing.assert_allclose(scores[int(net)].outputs[output], expected[name], rtol=1e-4)
                num_checked += 1
        solver.param.ClearField("test_interval")
        solver.step(1)
    solver.close()
    assert num_checked
