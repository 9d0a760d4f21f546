"""`caffejax run`: unedited scripts that `import caffe`, in separate processes."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from caffejax.cli import main
from caffejax.pycaffe import shim

SCRIPT = """
import multiprocessing, os, subprocess, sys
import helper                                      # beside the script
import caffe, caffe.io
from caffe.proto import caffe_pb2

def get_caffe_name(x):
    return caffe.__name__

if __name__ == "__main__":
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        print(*pool.map(get_caffe_name, [1]))
    print(subprocess.check_output([sys.executable, "-c", "import caffe; print(caffe.__name__)"], text=True).strip())
    print(sys.argv[1:], caffe.__name__, helper.X, caffe_pb2.NetParameter().name == "", os.getcwd())
    if "--fail" in sys.argv:
        caffe.Net("absent.prototxt", caffe.TEST)
    sys.exit(3)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "script.py").write_text(SCRIPT)
    (tmp_path / "package" / "helper.py").write_text("X = 5")
    return tmp_path


def run_python(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, cwd=folder)


def test_a_script_and_its_children_find_caffe(folder: Path) -> None:
    script = str(Path("package") / "script.py")
    result = run_python(folder, "-m", "caffejax", script, "--fast", "-x", "1")
    *children, parent = result.stdout.splitlines()
    assert result.returncode == 3, result.stderr
    assert children == ["caffejax.pycaffe"] * 2
    assert parent == f"['--fast', '-x', '1'] caffejax.pycaffe 5 True {folder}"


@pytest.mark.parametrize(
    "arguments",
    [["package/small.py", "--fail"], pytest.param(["-m", "package.small", "--fail"], marks=pytest.mark.long)],
)
def test_errors_of_a_script_have_only_its_traceback(folder: Path, arguments: list[str]) -> None:
    (folder / "package" / "small.py").write_text("import sys, caffe\ncaffe.Net(sys.argv[1], caffe.TEST)\n")
    result = run_python(folder, "-m", "caffejax", "run", *arguments)
    heading, location, *_, error_line = result.stderr.splitlines()
    assert result.returncode == 1
    assert heading.startswith("Traceback")
    assert "small.py" in location
    assert "--fail" in error_line


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["absent.py"], 1, "the script absent.py does not exist"),
        (["--verbose", "x.py"], 2, "no flag --verbose"),
        ([], 2, "SCRIPT"),
    ],
)
def test_invalid_commands_are_refused(
    arguments: list[str], code: int, message: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        result = main(["run", *arguments])
    except SystemExit as error:
        result = error.code  # type: ignore[assignment]
    assert result == code
    assert message in capsys.readouterr().err


def test_the_folder_on_the_path_suffices_for_import_caffe(tmp_path: Path) -> None:
    code = "import caffe, caffe.io; assert caffe.io.__name__ == 'caffejax.pycaffe.io'; caffe.layers.ReLU"
    subprocess.run(
        [sys.executable, "-c", code],
        check=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": _prepend_python_path(shim.FOLDER)},
    )


def _prepend_python_path(folder: Path) -> str:
    return os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH")]))
