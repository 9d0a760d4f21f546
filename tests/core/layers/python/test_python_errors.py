"""Python layers that cannot be found or fail: users' exceptions are unchanged, mistakes in the net are explained."""

import subprocess
import sys
import traceback
from pathlib import Path
from typing import Any

import jax
import pytest
from python_nets import draw_inputs, input_layer, python_layer

from caffejax import GraphError, Net
from caffejax.cli import main


def list_notes(error: BaseException) -> list[str]:
    return [n for n in error.__notes__ if not n.startswith("-")]  # JAX adds one about its frames


def test_exception_in_setup_is_raised_unchanged() -> None:
    with pytest.raises(RuntimeError, match="raised on purpose") as exc_info:
        Net(python_layer("bad", "ExceptionLayer", tops="y"))
    assert str(exc_info.value) == "raised on purpose"
    assert list_notes(exc_info.value) == ["in layer 'bad' (Python): user_layers.ExceptionLayer.setup"]
    assert traceback.extract_tb(exc_info.value.__traceback__)[-1].filename.endswith("user_layers.py")


@pytest.mark.parametrize(
    ("method", "error_type"), [("forward", ZeroDivisionError), ("backward", KeyError)], ids=["forward", "backward"]
)
def test_exception_in_forward_or_backward_is_raised_unchanged(method: str, error_type: type[Exception]) -> None:
    layer_text = python_layer("bad", "FailsLater", "x0", "y", "loss_weight: 1", method)
    net = Net(input_layer((2, 2)) + layer_text + "force_backward: true")
    with pytest.raises(error_type, match=f"in {method}") as exc_info:
        jax.grad(lambda x: net.loss({}, {}, {"x0": x})[0])(draw_inputs((2, 2))["x0"])
    assert list_notes(exc_info.value)[0] == f"in layer 'bad' (Python): user_layers.FailsLater.{method}"
    assert traceback.extract_tb(exc_info.value.__traceback__)[-1].filename.endswith("user_layers.py")


def test_exception_in_a_traced_layer_is_raised_unchanged() -> None:
    with pytest.raises(TypeError, match="a traceable layer's own error") as exc_info:
        Net(input_layer((2, 2)) + python_layer("bad", "raise_type_error", "x0", "y"))
    assert list_notes(exc_info.value)[0] == "in layer 'bad' (Python): user_layers.raise_type_error"


def format_layer(module: str, name: str) -> str:
    return f"""layer {{ name: "{module}.{name}" type: "Python" top: "{module}.{name}"
      python_param {{ module: "{module}" layer: "{name}" }} }}\n"""


def test_error_lists_all_missing_modules_and_classes() -> None:
    text = (
        format_layer("no_such_module", "A")
        + format_layer("user_layers", "SimpleLayr")
        + format_layer("xml.no_such", "B")
    )
    text += python_layer("reads", "NoForward", "no_such_module.A", "y") + python_layer(
        "three", "NOT_A_LAYER", tops="three"
    )
    text += 'layer { name: "empty" type: "Python" top: "empty" }'
    with pytest.raises(GraphError) as exc_info:
        Net(text)
    messages = [p.message for p in exc_info.value.problems]
    assert len(messages) == 6
    assert messages[0].startswith("there is no Python module 'no_such_module'; searched sys.path, ")
    assert str(Path.cwd()) in messages[0]
    assert messages[1].endswith("has no class or function 'SimpleLayr'; did you mean 'SimpleLayer'?")
    assert messages[2].startswith("there is no Python module 'xml.no_such'")
    assert messages[3].startswith("class user_layers.NoForward must have forward(self, bottom, top)")
    assert messages[4].startswith("'NOT_A_LAYER' in module ")
    assert messages[4].endswith(" must be a class or function, but is of type int")
    assert messages[5].startswith("python_param must set `module`")
    assert [p.layer for p in exc_info.value.problems][3] == "reads"


def test_import_errors_of_a_module_are_raised_with_a_note(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "needs_more.py").write_text("import a_module_that_is_not_installed\n")
    (tmp_path / "misspelt.py").write_text("def f(:\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    with pytest.raises(ModuleNotFoundError, match="a_module_that_is_not_installed") as exc_info:
        Net(format_layer("needs_more", "A"))
    module_note, layer_note = exc_info.value.__notes__
    assert module_note == "while importing module 'needs_more' of a Python layer"
    assert layer_note == "in layer 'needs_more.A' (Python)"
    with pytest.raises(SyntaxError):
        Net(format_layer("misspelt", "A"))


def test_module_in_the_folder_of_the_net_is_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "beside_the_net.py").write_text("from neighbour import double\n")
    (tmp_path / "neighbour.py").write_text("def double(x):\n    return 2 * x\n")
    (tmp_path / "net.prototxt").write_text(
        input_layer((2, 2)) + format_layer("beside_the_net", "double").replace("top:", 'bottom: "x0" top:')
    )
    blobs, _ = Net(tmp_path / "net.prototxt").forward({}, {}, x := draw_inputs((2, 2)))
    assert (blobs["beside_the_net.double"] == 2 * x["x0"]).all()


def test_gradient_through_a_layer_without_backward_is_refused(tmp_path: Path) -> None:
    text = input_layer((1, 2, 3, 3), (1, 1, 3, 3)) + python_layer("s", "Score", "x0 x1", "y", "loss_weight: 1")
    net = Net(text + "force_backward: true")
    with pytest.raises(
        GraphError, match=r"layer 's' \(Python\): has no backward pass, but a gradient through it is needed"
    ):
        net.graph.check_backward()


def test_surplus_params_are_refused() -> None:
    with pytest.raises(GraphError, match="too many params specified: 1 for 0 blobs"):
        Net(input_layer((2, 2)) + python_layer("s", "SimpleLayer", "x0", "y", "param { lr_mult: 1 }"))


SOLVER_TEXT = 'net_param { %s } base_lr: 0.1 lr_policy: "fixed" max_iter: 2 snapshot_prefix: "x"'


def test_command_line_prints_the_traceback_of_user_code(tmp_path: Path) -> None:
    (tmp_path / "failing_layers.py").write_text(
        "class Data:\n"
        "    def setup(self, bottom, top):\n"
        "        top[0].reshape(2)\n"
        "    def forward(self, bottom, top):\n"
        "        raise OSError('the camera is unplugged')\n"
    )
    (tmp_path / "solver.prototxt").write_text(SOLVER_TEXT % format_layer("failing_layers", "Data"))
    process = subprocess.run(
        [sys.executable, "-m", "caffejax", "train", "--solver=solver.prototxt", "--device=cpu"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 1
    assert process.stderr.rstrip().endswith(
        "OSError: the camera is unplugged\nin layer 'failing_layers.Data' (Python): failing_layers.Data.forward"
    )
    assert "    raise OSError('the camera is unplugged')" in process.stderr


def test_command_line_prints_no_traceback_for_a_missing_module(
    tmp_path: Path, capsys: pytest.CaptureFixture[Any]
) -> None:
    (tmp_path / "solver.prototxt").write_text(SOLVER_TEXT % format_layer("no_such_module", "Data"))
    assert main(["train", f"--solver={tmp_path / 'solver.prototxt'}"]) == 1
    err = capsys.readouterr().err
    assert "Traceback" not in err
    assert "layer 'no_such_module.Data' (Python): there is no Python module 'no_such_module'" in err
