"""The lines of `debug_info: true` for each layer, compared with plain computations."""

import logging
import re
from pathlib import Path

import jax
import numpy as np
import pytest

from caffejax import pycaffe
from caffejax.core.solver import Solver

SOLVER = """
net_param {
  layer { name: "data" type: "DummyData" top: "data" top: "label" dummy_data_param {
    shape { dim: 4 dim: 3 } shape { dim: 4 } data_filler { type: "constant" value: 2 }
    data_filler { type: "constant" value: 1 } } }
  layer { name: "ip" type: "InnerProduct" bottom: "data" top: "ip"
    inner_product_param { num_output: 2 weight_filler { type: "xavier" } } }
  layer { name: "relu" type: "ReLU" bottom: "ip" top: "ip" relu_param { negative_slope: 0.5 } }
  layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }
}
base_lr: 0.1 lr_policy: "fixed" display: 2 random_seed: 1 debug_info: true
"""


def test_the_log_has_mean_values_and_gradients_of_every_layer(caplog: pytest.LogCaptureFixture) -> None:
    solver = Solver(SOLVER)
    weight, bias = (np.asarray(solver.train_state.params["ip"][name]) for name in ("weight", "bias"))
    with caplog.at_level(logging.INFO, logger="caffejax"):
        solver.step(2)
    solver.close()
    lines = [m for r in caplog.records if re.match(r" +\[(Forward|Backward)\]", m := r.getMessage())]
    x, relu_input = np.full((4, 3), 2.0), np.full((4, 3), 2.0) @ weight.T + bias
    relu_output = np.where(relu_input > 0, relu_input, relu_input / 2)
    d_relu_output = (np.asarray(jax.nn.softmax(relu_output)) - np.array([0, 1])) / 4
    d_relu_input = d_relu_output * np.where(relu_input > 0, 1, 0.5)
    d_weight, d_bias = d_relu_input.T @ x, d_relu_input.sum(0)
    values = dict(re.fullmatch(r" +(.*(?:data|diff)): (\S+)", line).groups() for line in lines[:-1])  # type: ignore[union-attr]
    expected = {  # displayed iterations only: 0, not 1
        "[Forward] Layer data, top blob data data": x,
        "[Forward] Layer data, top blob label data": np.ones(4),
        "[Forward] Layer ip, top blob ip data": relu_input,
        "[Forward] Layer ip, param blob 0 data": weight,
        "[Forward] Layer ip, param blob 1 data": bias,
        "[Forward] Layer relu, top blob ip data": relu_output,
        "[Forward] Layer loss, top blob loss data": -np.log(np.asarray(jax.nn.softmax(relu_output))[:, 1]).mean(),
        "[Backward] Layer loss, bottom blob ip diff": d_relu_output,
        "[Backward] Layer relu, bottom blob ip diff": d_relu_input,
        "[Backward] Layer ip, param blob 0 diff": d_weight,
        "[Backward] Layer ip, param blob 1 diff": d_bias,
    }
    assert list(values) == list(expected)
    for name, value in expected.items():
        assert float(values[name]) == pytest.approx(np.abs(value).mean(), rel=1e-4), name
    params_and_gradients = np.concatenate([weight.ravel(), bias]), np.concatenate([d_weight.ravel(), d_bias])
    norms = [float(n) for n in re.findall(r"[\d.e+-]+(?=[,)])", lines[-1].split("norm", 1)[1])]
    sums = [
        np.abs(params_and_gradients[0]).sum(),
        np.abs(params_and_gradients[1]).sum(),
        np.linalg.norm(params_and_gradients[0]),
        np.linalg.norm(params_and_gradients[1]),
    ]
    assert norms == pytest.approx(sums, rel=1e-4)


SHARED = """
net_param {
  layer { name: "x" type: "DummyData" top: "a" dummy_data_param { shape { dim: 2 dim: 1 } data_filler { value: 1 } } }
  layer { name: "A" type: "InnerProduct" bottom: "a" top: "A" param { name: "w" }
    inner_product_param { num_output: 1 bias_term: false weight_filler { type: "constant" value: 1 } } }
  layer { name: "B" type: "InnerProduct" bottom: "a" top: "B" param { name: "w" }
    inner_product_param { num_output: 1 bias_term: false } }
  layer { name: "bn" type: "BatchNorm" bottom: "B" top: "C" }
  layer { name: "s" type: "Eltwise" bottom: "A" bottom: "B" top: "s" loss_weight: 0.5 }
  layer { name: "si" type: "Silence" bottom: "C" }
}
base_lr: 0.125 lr_policy: "fixed" snapshot_after_train: false clip_gradients: 1 iter_size: 2
"""
# a BatchNorm that saw ones once: mean 1, variance 0, factor 1; then twice, with moving_average_fraction 0.999
SECOND = 1 + 0.999
CLIPPING = "Gradient clipping: scaling down gradients (L2 norm 4 > 1) by scale factor 0.25"


def run_shared(
    settings: str, iterations: int, caplog: pytest.LogCaptureFixture, by_pycaffe: bool, folder: Path
) -> list[str]:
    with caplog.at_level(logging.INFO, logger="caffejax"):
        if by_pycaffe:
            (folder / "solver.prototxt").write_text(SHARED + settings)
            pycaffe.SGDSolver(str(folder / "solver.prototxt")).step(iterations)
        else:
            solver = Solver(SHARED + settings)
            solver.step(iterations)
            solver.close()
    pattern = re.compile(r" +\[(Forward|Backward)\]|Gradient|Iteration \d+, lr")
    return [message for message in caplog.messages if pattern.match(message)]


@pytest.mark.parametrize("by_pycaffe", [False, True])
def test_shared_params_have_the_diffs_that_are_added_up_so_far(
    caplog: pytest.LogCaptureFixture, by_pycaffe: bool, tmp_path: Path
) -> None:
    """The numbers follow from net.cpp: forward by a param's name, backward by its index, norms over each blob once.

    The gradient of each layer is 1 (two rows, weight 0.5), so the diff of `w` grows from 1 to 4 in two passes.
    """
    lines = run_shared("debug_info: true display: 1", 1, caplog, by_pycaffe, tmp_path)
    for statistics, diffs in ((1, 0, 1), (1, 2)), ((SECOND, 0, SECOND), (3, 4)):
        start = next(j for j, line in enumerate(lines) if line.startswith("    [Forward]"))
        end = next(j for j, line in enumerate(lines) if "All net params" in line)
        part, lines = lines[start : end + 1], lines[end + 1 :]
        blobs = [line for line in part if "param" in line and "All net" not in line]
        assert blobs == [
            "    [Forward] Layer A, param blob w data: 1",
            "    [Forward] Layer B, param blob w data: 1",
            *(f"    [Forward] Layer bn, param blob {n} data: {value:g}" for n, value in enumerate(statistics)),
            f"    [Backward] Layer B, param blob 0 diff: {diffs[0]}",
            f"    [Backward] Layer A, param blob 0 diff: {diffs[1]}",
        ]
        data = np.array([1, statistics[0], 0, statistics[2]])
        assert part[-1] == (
            f"    [Backward] All net params (data, diff): L1 norm = ({data.sum():g}, {diffs[1]}); "
            f"L2 norm = ({np.sqrt((data**2).sum()):g}, {diffs[1]})"
        )
    assert lines == ["Iteration 0, lr = 0.125", CLIPPING]


@pytest.mark.parametrize("by_pycaffe", [False, True])
def test_clipping_is_logged_in_each_iteration_that_clips(
    caplog: pytest.LogCaptureFixture, by_pycaffe: bool, tmp_path: Path
) -> None:
    """With debug_info and without, after the line of the rate: sgd_solver.cpp, ClipGradients."""
    assert run_shared("display: 2", 3, caplog, by_pycaffe, tmp_path) == [
        "Iteration 0, lr = 0.125",
        CLIPPING,
        CLIPPING,
        "Iteration 2, lr = 0.125",
        CLIPPING,
    ]
    caplog.clear()
    settings = SHARED.replace("clip_gradients: 1", "clip_gradients: 4")
    assert "clip_gradients: 4" in settings
    solver = Solver(settings)  # the norm is not above the limit
    solver.step(2)
    solver.close()
    assert not [m for m in caplog.messages if "clipping" in m]
