"""Signals that ask a training run for a snapshot or to stop."""

import argparse
import json
import logging
import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from caffejax import Solver
from caffejax.cli import main, signal_handlers


def test_a_second_sigint_ends_at_once_unless_it_is_a_duplicate(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Schedulers may send one to a process and to its parent, which hands it on."""
    now, requests = [7.0], []
    monkeypatch.setattr(signal_handlers, "time", SimpleNamespace(monotonic=lambda: now[0]))
    solver: Any = SimpleNamespace(callbacks=[], request=requests.append)
    with signal_handlers.handle_signals(solver, argparse.Namespace(sigint_effect="stop", sighup_effect="snapshot")):
        for _ in range(2):
            signal.raise_signal(signal.SIGINT)
            now[0] += 0.9
        with caplog.at_level(logging.INFO, "caffejax"):
            solver.callbacks[0](solver)
        assert "SIGINT" in caplog.messages[0]
        assert "second Ctrl-C" in caplog.messages[0]
        assert requests == ["stop", "stop"]
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


SOLVER = """
net_param {
  layer { name: "data" type: "DummyData" top: "data" dummy_data_param { shape { dim: 2 dim: 3 } } }
  layer { name: "ip" type: "InnerProduct" bottom: "data" top: "ip" inner_product_param { num_output: 2 } }
  layer { name: "loss" type: "Reduction" bottom: "ip" top: "loss" loss_weight: 1 }
}
base_lr: 0.01 lr_policy: "fixed" max_iter: 3 random_seed: 1
"""


def test_stopped_training_names_the_command_that_resumes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One command, with --snapshot=auto, is enough to start a job and to restart it."""
    monkeypatch.chdir(tmp_path)
    Path("my solver.prototxt").write_text(SOLVER)
    arguments = ["train", "-snapshot", "auto", "my solver.prototxt", "--keep-last", "3", "-strict_weights"]
    step = Solver.step

    def step_after_sigterm(solver: Solver, iterations: int) -> None:
        signal.raise_signal(signal.SIGTERM)
        step(solver, iterations)

    with monkeypatch.context() as patch:
        patch.setattr(Solver, "step", step_after_sigterm)
        assert main(arguments) == 0
    log = capsys.readouterr().err
    assert "No checkpoint in my solver.orbax; training starts at iteration 0" in log
    last_lines = [line.partition("] ")[2] for line in log.splitlines()[-2:]]
    flags = "--keep-last=3 --strict_weights '--snapshot=my solver.orbax'"
    command = f"caffejax train '--solver=my solver.prototxt' {flags}"
    assert last_lines == ["Optimization stopped early.", f"Resume with: {command}"]
    last_event = Path("my solver.metrics.jsonl").read_text().splitlines()[-1]
    assert json.loads(last_event)["reason"] == "stopped"
    assert main(arguments) == 0
    log = capsys.readouterr().err
    assert "Restored iteration 1 from my solver.orbax" in log
    assert "Resume with" not in log
