"""Messages and warnings of solvers name the fields to set, and advice that fits."""

from pathlib import Path

import numpy as np
import pytest

from caffejax import pycaffe
from caffejax.base.errors import CaffejaxError, SolverError
from caffejax.cli import main
from caffejax.core.schema import read_solver
from caffejax.core.solver import Solver
from caffejax.core.solver.solver_param import check_solver
from caffejax.tools.logs.log_parser import read_log

NET = """
layer { name: "x" type: "Input" top: "x" input_param { shape { dim: 1 dim: 1 } } }
layer { name: "ip" type: "InnerProduct" bottom: "x" top: "ip"
  inner_product_param { num_output: 1 weight_filler { type: "constant" value: 1 } } }
layer { name: "log" type: "Log" bottom: "ip" top: "log" loss_weight: 1 }
"""
STAGES = """
layer { name: "x" type: "DummyData" top: "x" dummy_data_param { shape { dim: 1 dim: 1 } } }
layer { name: "fi0" type: "Power" bottom: "x" top: "fi" include { stage: "st0" } }
layer { name: "fi1" type: "Power" bottom: "x" top: "fi" include { stage: "st1" } }
layer { name: "l" type: "Reduction" bottom: "fi" top: "l" loss_weight: 1 }
"""


def run(solver: Solver, iterations: int) -> float:
    solver.step(iterations)
    return solver.smoothed_loss


def get_nan_message(values: list[float], *, debug_nans: bool = False, base_lr: float = 1e30) -> str:
    solver = Solver(
        f'net_param {{ {NET} }} base_lr: {base_lr} lr_policy: "fixed"',
        data={"x": np.reshape(np.array(values, np.float32), (-1, 1))},
        debug_nans=debug_nans,
    )
    with pytest.raises(SolverError) as exc_info:
        run(solver, len(values))
    solver.close()
    return str(exc_info.value)


def test_a_loss_that_is_nan_before_the_first_update_does_not_blame_the_learning_rate() -> None:
    for values in [np.nan], [-1.0], [np.inf, 1]:
        for debug_nans in (False, True):
            message = get_nan_message(values, debug_nans=debug_nans)
            assert "iteration 0: " in message
            assert "lower base_lr" not in message
            assert debug_nans or ("data" in message and "weights" in message and "labels" in message)
    assert "lower base_lr" in get_nan_message([1.0, 1.0])  # the update made it so
    assert "lower base_lr" in get_nan_message([1.0, -1.0], base_lr=0)


# the settings of a policy, the field that is named, and whether it is an error here and in Caffe
POLICIES: list[tuple[str, str, bool]] = [
    ('lr_policy: "step" gamma: 0.1', "stepsize", True),
    ('lr_policy: "step" stepsize: 5', "gamma", False),
    ('lr_policy: "multistep" stepvalue: 5', "gamma", False),
    ('lr_policy: "multistep" gamma: 0.1', "stepvalue", False),
    ('lr_policy: "exp"', "gamma", False),
    ('lr_policy: "inv" power: 1', "gamma", False),
    ('lr_policy: "inv" gamma: 1', "power", False),
    ('lr_policy: "poly" max_iter: 9', "power", False),
    ('lr_policy: "poly" power: 1', "max_iter", True),
    ('lr_policy: "sigmoid" gamma: 1', "stepsize", True),
    ('lr_policy: "sigmoid" stepsize: 5', "gamma", False),
    ('lr_policy: "multifixed" stagelr: 0.1', "stageiter", True),
    ('lr_policy: "plateau" gamma: 0.1', "plateau_winsize", False),
    ('lr_policy: "plateau" plateau_winsize: 5', "gamma", False),
    ('lr_policy: "stepearly" gamma: 0.1 test_interval: 5', "stepearly", True),
    ("base_lr: 1", "lr_policy", True),
    ('lr_policy: "fixed" max_iter: 0', "base_lr", False),
]


@pytest.mark.parametrize(("settings", "field", "is_error"), POLICIES)
def test_a_field_that_a_policy_lacks_is_named(
    settings: str, field: str, is_error: bool, caplog: pytest.LogCaptureFixture
) -> None:
    text = settings if "base_lr" in settings or field == "base_lr" else f"{settings} base_lr: 1"
    param = read_solver(text)
    if is_error:
        with pytest.raises(SolverError) as exc_info:
            check_solver(param, "s.prototxt", needs_net=False)
        messages = [problem.message for problem in exc_info.value.problems]
    else:
        check_solver(param, "s.prototxt", needs_net=False)
        messages = caplog.messages
    (message,) = messages
    assert field in message
    assert "set " in message or "needs a positive" in message
    assert "MyCaffe" not in message


def test_complete_policies_warn_of_nothing(caplog: pytest.LogCaptureFixture) -> None:
    for settings in (
        'lr_policy: "fixed"',
        'lr_policy: "step" gamma: 0 stepsize: 5',
        'lr_policy: "multistep" gamma: 0.1 stepvalue: 5',
        'lr_policy: "inv" gamma: 0 power: 0',
        'lr_policy: "multifixed" stagelr: 0.1 stageiter: 5',
    ):
        check_solver(read_solver(f"base_lr: 0 {settings}"), needs_net=False)
    assert not caplog.messages


def test_layers_of_another_state_are_named_with_the_field_that_sets_it() -> None:
    solver = f'net_param {{ {STAGES} }} base_lr: 1 lr_policy: "fixed" test_iter: 1 test_interval: 9 '
    only = "only the layers 'fi0', 'fi1' produce it, and their rules exclude them in this state"
    with pytest.raises(CaffejaxError) as exc_info:
        Solver(solver + 'train_state { stage: "st0" }')
    assert f"{only}; its stages and level are set by the solver's test_state, not by --stage" in str(exc_info.value)
    with pytest.raises(CaffejaxError) as exc_info:
        Solver(solver + 'test_state { stage: "st0" }')
    assert f"{only}; its stages and level are set by the solver's train_state or --stage" in str(exc_info.value)
    Solver(solver + 'train_state { stage: "st0" } test_state { stage: "st1" }').close()


@pytest.mark.parametrize("file", ["/dev/null", "empty.caffemodel", "empty.caffemodel.h5"])
def test_files_without_weights_leave_a_net_as_its_fillers_set_it(
    file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    net = NET.replace('type: "Input"', 'type: "DummyData"').replace("input_param { ", "dummy_data_param { ")
    net = net.replace('layer { name: "log" type: "Log"', 'layer { name: "log" type: "Power" power_param { shift: 3 }')
    Path("net.prototxt").write_text(net)
    Path("s.prototxt").write_text('net: "net.prototxt" base_lr: 0 lr_policy: "fixed" max_iter: 0 display: 1')
    if file != "/dev/null":
        Path(file).write_bytes(b"")
    for arguments, line in (
        (["test", "net.prototxt", f"--weights={file}", "--iterations=1"], "log = 3 "),
        (["train", "s.prototxt", f"--weights={file}"], "loss = 3"),
    ):
        assert main(arguments) == 0
        log = capsys.readouterr().err
        assert line in log
        assert f"{file} is empty: the weights of all layers stay as their fillers set them" in log
        assert main([*arguments, "--strict_weights"]) == 1
        assert file in capsys.readouterr().err
    assert pycaffe.Net("net.prototxt", file, pycaffe.TEST).params["ip"][0].data.item() == 1


def write_log(num_nets: int) -> str:
    lines = []
    for iteration in (0, 10, 20):
        for net in range(num_nets):
            lines += [f"Iteration {iteration}, Testing net (#{net})", f"    Test net output #0: accuracy = 0.{net}"]
        lines += [f"Iteration {iteration}, loss = 1", f"Iteration {iteration}, lr = {0.5 if iteration else 1}"]
    return "\n".join(f"I1128 12:00:{i:02}.000000  1 solver.cpp:1] {line}" for i, line in enumerate(lines))


@pytest.mark.parametrize("num_nets", [1, 2, 3])
def test_the_rates_of_the_first_rows_are_filled_with_any_number_of_test_nets(num_nets: int, tmp_path: Path) -> None:
    """BVLC's parser copies the rate of the next row to the first row of its only net."""
    (tmp_path / "log").write_text(write_log(num_nets))
    rows = read_log(tmp_path / "log").test
    assert [row["NumIters"] for row in rows] == [i for i in (0, 10, 20) for _ in range(num_nets)]
    assert [row["LearningRate"] for row in rows] == [rate for rate in (1, 1, 0.5) for _ in range(num_nets)]
