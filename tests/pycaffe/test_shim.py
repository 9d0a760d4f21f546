"""`import caffe` of the package in the folder `shim`, beside checkouts of Caffe that were not built."""

import os
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from caffejax import __main__
from caffejax.cli.tools import EXAMPLES, SUCCESSORS, TOOLS
from caffejax.pycaffe import shim

SCRIPT = """
import multiprocessing, sys
sys.path.insert(0, "checkout/python")
import caffe
from caffe import layers as L, model_libs
import caffe.tools.more

if __name__ == "__main__":
    print(caffe.__name__, model_libs.KIND, caffe.tools.more.KIND, type(L).__name__)
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        print(pool.apply(eval, ("__import__('caffe').__name__",)))
"""
MODEL_LIBS = "from caffe import layers as L\nfrom caffe.proto import caffe_pb2\nimport caffe\nKIND = type(L).__name__"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Make a checkout of Caffe that was not built but has other modules."""
    package = tmp_path / "checkout" / "python" / "caffe"
    for name, text in {
        "__init__.py": "from ._caffe import Net",
        "model_libs.py": MODEL_LIBS,
        "layers.py": "",
        "tools/__init__.py": "",
        "tools/more.py": "from .. import model_libs\nKIND = model_libs.KIND",
    }.items():
        (package / name).parent.mkdir(parents=True, exist_ok=True)
        (package / name).write_text(text)
    (tmp_path / "script.py").write_text(SCRIPT)
    return tmp_path


def run_python(folder: Path, *arguments: str, path: str = "") -> str:
    paths = filter(None, [path, os.environ.get("PYTHONPATH")])
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    result = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, cwd=folder, env=environ)
    assert result.returncode == 0, result.stderr
    return result.stdout


@pytest.mark.parametrize("use_run_command", [True, False])
def test_an_unbuilt_checkout_first_on_the_path_is_skipped(folder: Path, use_run_command: bool) -> None:
    arguments = ("-m", "caffejax", "run") if use_run_command else ()
    lines = run_python(folder, *arguments, "script.py", path="" if use_run_command else str(shim.FOLDER)).splitlines()
    assert lines == ["caffejax.pycaffe Layers Layers Layers", "caffejax.pycaffe"]


@pytest.mark.parametrize("name", ["_caffe.so", "_caffe.abi3.so"])
def test_a_built_caffe_is_imported(folder: Path, name: str) -> None:
    package = folder / "checkout" / "python" / "caffe"
    (package / name).touch()
    (package / "__init__.py").write_text("built = True")
    code = "import sys; sys.path.insert(0, 'checkout/python'); import caffe; print(caffe.built)"
    assert run_python(folder, "-c", code, path=str(shim.FOLDER)) == "True\n"


def test_another_sitecustomize_still_runs(folder: Path) -> None:
    (folder / "sitecustomize.py").write_text("import builtins; builtins.customized = 1")
    path = os.pathsep.join([str(shim.FOLDER), str(folder)])
    assert run_python(folder, "-c", "print(customized)", path=path) == "1\n"


def test_the_shim_has_the_programs_of_caffe(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """They are those that `caffejax tools` writes, and each runs the command of its name."""
    project = tomllib.loads((Path(__file__).parents[2] / "shim" / "pyproject.toml").read_text())["project"]
    assert project["scripts"] == {
        name: "caffejax.__main__:start" if name == "caffe" else "caffejax.__main__:start_tool"
        for name in {*TOOLS, *EXAMPLES.values(), *SUCCESSORS}
    }
    monkeypatch.setattr(__main__.signal, "signal", lambda *arguments: None)  # it would stay changed
    for name in project["scripts"].keys() - {"caffe"}:
        monkeypatch.setattr(sys, "argv", [f"/usr/bin/{name}", "--help"])
        if name in SUCCESSORS:
            assert __main__.start_tool() == 1
            assert SUCCESSORS[name] in capsys.readouterr().err
            continue
        with pytest.raises(SystemExit) as exit:
            __main__.start_tool()
        assert exit.value.code == 0
        assert f"caffejax {name}" in capsys.readouterr().out


def test_the_wheel_imports_the_hook_when_python_starts(tmp_path: Path) -> None:
    repository = Path(__file__).parents[2]
    for folder in ("shim", "src/caffejax/pycaffe/shim"):  # pip builds in the folder itself
        shutil.copytree(repository / folder, tmp_path / folder, ignore=shutil.ignore_patterns("build", "*.egg-info"))
    build = [sys.executable, "-m", "pip", "wheel", "-q", "--no-build-isolation", "--no-deps", "-w", str(tmp_path)]
    subprocess.run([*build, str(tmp_path / "shim")], check=True)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info" not in name}
        assert names == {"caffe_import_hook.pth", "caffe_import_hook.py", "caffe/__init__.py"}
        assert archive.read("caffe_import_hook.pth") == b"import caffe_import_hook\n"
