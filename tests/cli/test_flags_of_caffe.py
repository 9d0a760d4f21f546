"""Caffe's flags: those that replace fields of the solver, those that all commands know, and the device."""

import argparse
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from caffejax import pycaffe
from caffejax.base.errors import CaffejaxError
from caffejax.cli import device_flags, main
from caffejax.core.program.net import Net

NET = """
layer { name: "x" type: "DummyData" top: "x" dummy_data_param { shape { dim: 1 dim: 1 } data_filler { value: 1 } } }
layer { name: "A" type: "InnerProduct" bottom: "x" top: "A"
  inner_product_param { num_output: 1 weight_filler { type: "constant" value: 1 } } }
layer { name: "B" type: "InnerProduct" bottom: "A" top: "B"
  inner_product_param { num_output: 1 weight_filler { type: "constant" value: 1 } } loss_weight: 1 }
layer { name: "s" type: "Power" bottom: "x" top: "s" power_param { scale: 7 } include { stage: "st" } }
layer { name: "l" type: "Power" bottom: "x" top: "l" power_param { scale: 3 } include { min_level: 2 } }
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with a net and weights of 10 for both of its layers or for one of them."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CAFFEJAX_DEVICE", raising=False)
    Path("net.prototxt").write_text(NET)
    ten, zero = np.full((1, 1), 10, np.float32), np.zeros(1, np.float32)
    for name, net in ("both", NET), ("only_a", NET.replace('name: "B"', 'name: "C"')):
        params = {layer: {"weight": ten, "bias": zero} for layer in ("A", "B" if name == "both" else "C")}
        Net(net, "TRAIN").save(params, {}, f"{name}.caffemodel")
    Path("no_weights.caffemodel").write_text("text")
    return tmp_path


def train(fields: str, *flags: str) -> int:
    Path("solver.prototxt").write_text(f'net: "net.prototxt" base_lr: 0 lr_policy: "fixed" display: 1 {fields}')
    return main(["train", "--solver=solver.prototxt", *flags])


# the field of the solver, the flag that replaces it, and a text of the log
FLAGS_AND_FIELDS = [
    ('weights: "both.caffemodel"', [], "#0: B = 100"),
    ('weights: "both.caffemodel"', ["--weights=only_a.caffemodel"], "#0: B = 10 "),
    ('weights: "absent.caffemodel"', ["--weights=only_a.caffemodel"], "#0: B = 10 "),
    ('weights: "no_weights.caffemodel"', ["--weights=only_a.caffemodel"], "#0: B = 10 "),
    ("", ["--weights=only_a.caffemodel, both.caffemodel"], "#0: B = 100"),
    ('weights: " both.caffemodel , only_a.caffemodel "', [], "#0: B = 100"),
    ('weights: "both.caffemodel" weights: "only_a.caffemodel"', [], "#0: B = 100"),
    ('train_state { stage: "other" }', ["--stage=st, another"], "s = 7"),
    ("train_state { level: 5 }", ["--level=0"], "#0: B = 1 "),
    ("train_state { level: 5 }", [], "l = 3"),
    ("", ["--level=3"], "l = 3"),
    ("solver_mode: GPU device_id: 9", ["--device=cpu"], "Running on cpu:0"),
    ("solver_mode: CPU", ["--gpu=3", "--device=cpu"], "--device=cpu replaces --gpu=3"),
]


@pytest.mark.parametrize(("field", "flags", "line"), FLAGS_AND_FIELDS)
def test_a_flag_replaces_the_field_that_says_the_same(
    folder: Path, capsys: pytest.CaptureFixture[str], field: str, flags: list[str], line: str
) -> None:
    assert train(f"max_iter: 1 snapshot_after_train: false {field}", *flags) == 0
    log = capsys.readouterr().err
    assert line in log
    if "--level=0" in flags:
        assert "l = 3" not in log


@pytest.mark.parametrize("weights", ["both.caffemodel", "absent.caffemodel", "no_weights.caffemodel"])
def test_a_snapshot_replaces_the_solvers_weights(
    folder: Path, capsys: pytest.CaptureFixture[str], weights: str
) -> None:
    """A resume does not open them, by an explicit path and by auto; a start at 0 by auto does."""
    assert train('max_iter: 1 snapshot_prefix: "s"', "--weights=only_a.caffemodel") == 0
    for snapshot in ("s.orbax", "s_iter_1.solverstate", "auto"):
        capsys.readouterr()
        assert train(f'weights: "{weights}" max_iter: 2 snapshot_prefix: "s"', f"--snapshot={snapshot}") == 0
        assert ", loss = 10\n" in capsys.readouterr().err
    assert train(f'weights: "{weights}" max_iter: 1 snapshot_prefix: "t"', "--snapshot=auto") == (weights[0] != "b")


COMMON = "gpu solver model phase level stage snapshot weights iterations sigint_effect sighup_effect".split()
OWN = {  # by gflags' rule the commands share all flags; these have an effect here
    "train": {"gpu", "solver", "level", "stage", "snapshot", "weights", "sigint_effect", "sighup_effect"},
    "test": {"gpu", "model", "level", "stage", "weights", "iterations"},
    "time": {"gpu", "model", "weights", "phase", "level", "stage", "iterations"},
    "device_query": {"gpu"},
}


@pytest.mark.parametrize("command", OWN)
def test_flags_of_all_of_caffes_commands_are_known_to_each(
    folder: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    ignored = [flag for flag in COMMON if flag not in OWN[command]]
    flags = [word for i, flag in enumerate(ignored) for word in ([f"-{flag}", "5"] if i % 2 else [f"--{flag}=5"])]
    Path("solver.prototxt").write_text('net: "net.prototxt" base_lr: 0 lr_policy: "fixed" max_iter: 0')
    arguments = {
        "train": ["-solver", "solver.prototxt"],
        "test": ["-model", "net.prototxt", "-weights", "both.caffemodel", "-iterations", "1"],
        "time": ["-model", "net.prototxt", "-weights", "both.caffemodel", "-iterations", "1"],
        "device_query": [],
    }
    assert main([command, *flags, *arguments[command]]) == 0
    log = capsys.readouterr().err
    for flag in COMMON:
        assert (f"--{flag} has no effect on this command" in log) == (flag in ignored), flag


def test_a_misspelt_flag_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["train", "-solver", "x", "-iteration", "5"])
    assert "there is no flag -iteration" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("gpu", "device", "variable", "expected"),
    [
        ("0", "cpu", "", "cpu"),
        ("0", None, "cpu", "cpu"),
        ("0,1", None, "cpu", "cpu"),
        ("all", None, "cpu:0", "cpu"),
        (None, None, "cpu", "cpu"),
        ("0", "cpu:0", "gpu", "cpu"),
        ("0", None, "", "CAFFEJAX_DEVICE=cpu"),  # an error, whose advice is the rows above
        ("0", None, "gpu:1", "CAFFEJAX_DEVICE=cpu"),
        (None, "gpu", "cpu", "CAFFEJAX_DEVICE=cpu"),
        (None, None, "cuda:x", "'x' is not a device number"),
        ("0", "gpu:1", "", "not both"),
        ("0", "tpu", "cpu", "not both"),
    ],
)
def test_the_advice_for_machines_without_a_gpu_works(
    monkeypatch: pytest.MonkeyPatch, gpu: Any, device: Any, variable: str, expected: str
) -> None:
    monkeypatch.setenv("CAFFEJAX_DEVICE", variable)
    for pick in (
        lambda options: device_flags.pick_device(options, prefer_gpu=True),
        lambda options: device_flags.pick_devices(options, prefer_gpu=True, device_id=0),
    ):
        options = argparse.Namespace(gpu=gpu, device=device, devices=None, mesh=None)
        if expected == "cpu":
            assert pick(options) == jax.devices("cpu")[0]
            continue
        with pytest.raises(CaffejaxError, match=expected):
            pick(options)


def test_the_variable_decides_for_scripts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("caffejax.pycaffe._global_state._find_gpus", lambda: ["a GPU"])
    process = pycaffe._global_state._process
    for mode in ("gpu", "cpu", ""):
        monkeypatch.setattr(process, "mode", mode)
        monkeypatch.setenv("CAFFEJAX_DEVICE", "cpu")
        assert pycaffe._global_state.get_device() == jax.devices("cpu")[0]
        monkeypatch.setenv("CAFFEJAX_DEVICE", "gpu:7")
        with pytest.raises(CaffejaxError, match="CAFFEJAX_DEVICE=gpu:7"):
            pycaffe._global_state.get_device()
        monkeypatch.delenv("CAFFEJAX_DEVICE")
        assert pycaffe._global_state.get_device() == ("a GPU" if mode == "gpu" else jax.devices("cpu")[0])
