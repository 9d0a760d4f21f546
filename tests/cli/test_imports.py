"""`--import`: modules of the user that are imported before nets are read."""

import sys
from pathlib import Path

import pytest

from caffejax.cli import main
from caffejax.core.layers import layer_types, registry

MODULE = """
import caffejax
caffejax.register("Thrice")(lambda x: 3 * x)
"""
NET = """
layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 2 dim: 3 } } }
layer { name: "own" type: "Thrice" bottom: "data" top: "own" }
"""
PYTHON_LAYER = (
    'layer { name: "py" type: "Python" bottom: "own" top: "py" python_param { module: "thrice" layer: "f" } }\n'
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a folder with a net of a custom layer type, and make it the working directory.

    Python does not search the working directory by default.
    """
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])
    monkeypatch.setattr(registry, "_types", layer_types())  # all, or one that a test imports first would be lost
    monkeypatch.delitem(sys.modules, "thrice", raising=False)
    (tmp_path / "thrice.py").write_text(MODULE)
    (tmp_path / "net.prototxt").write_text(NET)
    return tmp_path


def test_a_module_of_the_working_directory_registers_a_type(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["summary", "net.prototxt"]) == 1
    assert "--import=MODULE" in capsys.readouterr().err
    assert main(["summary", "net.prototxt", "--import=thrice", "-import", "json"]) == 0
    assert "Thrice" in capsys.readouterr().out


def test_imported_modules_are_not_allowed_as_python_layers(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "net.prototxt").write_text(NET + PYTHON_LAYER)
    assert main(["summary", "net.prototxt", "--import=thrice", "--no_python_layers"]) == 1
    assert "would run thrice.f" in capsys.readouterr().err


def test_missing_modules_are_reported(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["summary", "net.prototxt", "--import=nowhere.layers"]) == 1
    output = capsys.readouterr().err
    assert output.startswith(f"caffejax: --import=nowhere.layers: there is no module 'nowhere' in {folder}")
    for name, message in (("thrice.py", "give the module's name, 'thrice'"), ("a b", "is not a valid module name")):
        with pytest.raises(SystemExit):
            main(["summary", "net.prototxt", f"--import={name}"])
        assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (
            "\nimport nowhere_either",
            ":2: --import=thrice: the module cannot be imported: No module named 'nowhere_either'",
        ),
        ("x = {}\nx['a']", ":2: --import=thrice: the module cannot be imported: KeyError('a')"),
        ("x = 1\n\nif:\n", ":3: --import=thrice: is not Python: invalid syntax"),
        ("import sys\nsys.exit()", ":2: --import=thrice: the module cannot be imported: it ends the program"),
    ],
)
def test_modules_that_fail_are_reported_with_the_line(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, code: str, message: str
) -> None:
    monkeypatch.delitem(sys.modules, "thrice", raising=False)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    (folder / "thrice.py").write_text(code)
    assert main(["summary", "net.prototxt", "--import=thrice"]) == 1
    assert f"caffejax: {folder / 'thrice.py'}{message}" in capsys.readouterr().err
