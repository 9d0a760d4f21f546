"""The log that nets and solvers write to stderr."""

import logging
import re
import sys

import pytest

import caffejax.pycaffe as caffe
from pycaffe.conftest import DUMMY_DATA_NET, Write

SOLVER = """
train_net: "small.prototxt" test_net: "small.prototxt" test_iter: 1 test_interval: 2 base_lr: 0.001
lr_policy: "fixed" max_iter: 3 display: 1 snapshot: 2 snapshot_prefix: "here"
"""
LINES = """
Creating Layer conv
Solving small
Iteration 0, Testing net (#0)
Test net output #0: loss
Train net output #0: loss
Snapshotting to binary proto file here_iter_2.caffemodel
Iteration 2, Testing net (#0)
Iteration 2, lr = 0.001
Optimization Done."""


def run_solver(write: Write) -> None:
    write("small.prototxt", DUMMY_DATA_NET)
    caffe.SGDSolver(write("solver.prototxt", SOLVER)).solve()


def test_a_solver_logs_caffes_lines(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    logger = logging.getLogger("caffejax")
    old_settings = logger.level, list(logger.handlers), logger.propagate
    run_solver(write)
    log = capsys.readouterr().err
    assert not [line for line in LINES.split("\n") if line not in log]
    losses = re.findall(r"^I\d{4} [\d:.]+ +\d+ \w+\.py:\d+\] Iteration (\d) \(.*\), loss = [\d.]+$", log, re.MULTILINE)
    assert losses == ["0", "1", "2"]
    caffe.log("a line of the user's")
    assert capsys.readouterr().err.endswith("] a line of the user's\n")
    assert (logger.level, logger.handlers, logger.propagate) == old_settings


@pytest.mark.parametrize("method", ["set_logging", "GLOG_minloglevel"])
def test_the_log_can_be_switched_off(
    method: str, write: Write, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    if method == "set_logging":
        caffe.init_log()
        caffe.set_logging(False)
    else:
        monkeypatch.setenv(method, "2")
    run_solver(write)
    assert capsys.readouterr().err == ""


def test_lines_are_printed_once_if_python_logs_to_stderr(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    root, handler = logging.getLogger(), logging.StreamHandler(sys.stderr)
    root.addHandler(handler)
    try:
        caffe.log("hello")
    finally:
        root.removeHandler(handler)
    assert capsys.readouterr().err.count("hello") == 1
