"""`caffejax view`: the path of its page, its output, and its server until an interrupt."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from urllib.request import urlopen

import pytest
from test_help_and_errors import run_with_error

from caffejax.cli import main

REPOSITORY = Path(__file__).parents[2]
LENET = REPOSITORY / "configs" / "lenet" / "train_val.prototxt"


@pytest.mark.parametrize(("flags", "name"), [((), "train_val.html"), (("--out", "a.html"), "a.html")])
def test_the_page_is_written_to_the_printed_path(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    flags: tuple[str, ...],
    name: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["view", str(LENET), *flags]) == 0
    assert capsys.readouterr().out == f"Wrote {name}\n"
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert (tmp_path / name).read_bytes().startswith(b"<!doctype html>")


def test_problems_are_printed_and_the_page_is_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    net = REPOSITORY / "tests" / "tools" / "view" / "wrong.prototxt"
    assert main(["view", str(net), "--out", str(tmp_path / "a.html")]) == 1
    assert (tmp_path / "a.html").read_bytes().startswith(b"<!doctype html>")
    output = capsys.readouterr().err.splitlines()
    assert len(output) == 5
    assert output.pop(0) == "The page shows 4 problems"
    assert re.match(r"caffejax: .*wrong.prototxt:3:\d+: layer 'conv1' .*did you mean 'kernel_size'", output[0])
    assert any(
        re.match(r"caffejax: TRAIN/TEST: .*layer 'sum' \(Eltwise\): unknown bottom blob", line) for line in output
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("absent.prototxt",), "absent.prototxt: no such file"),
        ((".",), "this is a folder"),
        ((str(LENET), "--out", "no_folder/a.html"), "cannot be written: .*create the folder first"),
        ((str(LENET), "--out", str(LENET)), "would overwrite an input file"),
        ((str(LENET), "--serve", "--out", "a.html"), "give one of them"),
        (("absent.prototxt", "--serve"), "no such file"),
    ],
)
def test_invalid_arguments_are_refused(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: tuple[str, ...],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert re.search(message, run_with_error(capsys, "view", *arguments))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("port", ["-1", "65536", "x"])
def test_invalid_ports_are_refused(port: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exc_info:
        main(["view", str(LENET), "--serve", f"--port={port}"])
    assert exc_info.value.code == 2
    assert "is not a port number" in capsys.readouterr().err


def test_the_server_runs_until_interrupted() -> None:
    command = [sys.executable, "-m", "caffejax", "view", str(LENET), "--serve"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ) as process:
        assert process.stdout is not None
        output = process.stdout.readline()
        result = re.search(r"http://127\.0\.0\.1:\d+/", output)
        assert result is not None, output
        with urlopen(result[0], timeout=30) as response:
            assert b"LeNet" in response.read()
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 130
