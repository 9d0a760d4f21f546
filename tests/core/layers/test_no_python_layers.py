"""`no_python_layers`: nets that would run code of modules are rejected, and the modules are not imported."""

import sys
from pathlib import Path
from typing import Any

import pytest

from caffejax import Net, NetConfig, Solver
from caffejax import pycaffe as caffe
from caffejax.base.errors import CaffejaxError
from caffejax.cli import main

PYTHON_NET = """
layer { name: "x" type: "DummyData" top: "x" dummy_data_param { shape { dim: 2 dim: 3 } } }
layer { name: "run" type: "Python" bottom: "x" top: "y" python_param { module: "leaves_a_trace" layer: "Layer" } }
layer { name: "too" type: "Python" bottom: "y" top: "z" python_param { module: "another.trace" layer: "f" } }
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    module_text = f"open({str(tmp_path / 'imported')!r}, 'w').close()\n\n\ndef f(x):\n    return x\n\n\nLayer = f\n"
    (tmp_path / "leaves_a_trace.py").write_text(module_text)
    (tmp_path / "another").mkdir()
    (tmp_path / "another" / "trace.py").write_text(module_text)
    (tmp_path / "net.prototxt").write_text(PYTHON_NET)
    (tmp_path / "solver.prototxt").write_text(
        'net: "net.prototxt" base_lr: 0.1 lr_policy: "fixed" max_iter: 1 snapshot_prefix: "s" snapshot_after_train: 0'
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))  # `--import` adds the working directory
    return tmp_path


def test_error_lists_all_python_layers_and_nothing_is_imported(folder: Path) -> None:
    with pytest.raises(CaffejaxError) as exc_info:
        Net(folder / "net.prototxt", no_python_layers=True)
    first_line, second_line = str(exc_info.value).splitlines()
    assert "net.prototxt: layer 'run' (Python): would run leaves_a_trace.Layer, which is Python code" in first_line
    assert "layer 'too' (Python): would run another.trace.f" in second_line
    assert "no_python_layers (--no_python_layers) forbids" in first_line
    assert not (folder / "imported").exists()


COMMAND_LINES = {
    "train": "train --solver=solver.prototxt",
    "test": "test --model=net.prototxt --weights=net.prototxt",
    "time": "time --model=net.prototxt",
    "summary memory": "summary net.prototxt --memory",
    "summary": "summary net.prototxt",
    "check": "check net.prototxt",
    "view": "view net.prototxt",
    "export": "export net.prototxt --to=x.stablehlo",
    "plan": "plan net.prototxt --target=cuda:h100:1",
    "gradcheck": "gradcheck --model=net.prototxt",
    "dump": "dump --model=net.prototxt --out=x.npz",
    "draw blob": "draw net.prototxt --weights=net.prototxt --blob=y --out=x.png",
    "draw filters": "draw net.prototxt --filters --weights=net.prototxt --out=x.png",
    "extract_features": "extract_features net.prototxt net.prototxt y db 1 lmdb",
    "classify": "classify x.npy y.npy --model_def=net.prototxt --pretrained_model=net.prototxt",
    "detect": "detect w.csv y.h5 --model_def=net.prototxt --pretrained_model=net.prototxt",
}


@pytest.mark.parametrize(
    "command", [pytest.param(name, marks=pytest.mark.long) if name == "check" else name for name in COMMAND_LINES]
)
def test_every_command_that_builds_nets_refuses_python_layers(
    command: str, folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    import numpy as np

    np.save(folder / "x.npy", np.zeros((1, 4, 4, 3), np.float32))
    (folder / "w.csv").write_text("filename,ymin,xmin,ymax,xmax\nim.png,0,0,8,8\n")
    code = main([*COMMAND_LINES[command].split(), "--no_python_layers", "--import=json"])
    caffe.set_limits(no_python_layers=False)
    output = capfd.readouterr()
    assert code == 1
    assert "would run leaves_a_trace.Layer" in " ".join((output.out + output.err).split())
    assert not (folder / "imported").exists()


def test_nets_and_solvers_refuse_python_layers(folder: Path) -> None:
    calls: list[Any] = [
        lambda: Net(PYTHON_NET, config=NetConfig(no_python_layers=True)),
        lambda: Solver(folder / "solver.prototxt", no_python_layers=True),
    ]
    for call in calls:
        with pytest.raises(CaffejaxError, match=r"would run leaves_a_trace\.Layer"):
            call()
    caffe.set_limits(no_python_layers=True)
    try:
        with pytest.raises(CaffejaxError, match=r"would run leaves_a_trace\.Layer"):
            caffe.Net(str(folder / "net.prototxt"), caffe.TEST)
    finally:
        caffe.set_limits(no_python_layers=False)
    assert not (folder / "imported").exists()
