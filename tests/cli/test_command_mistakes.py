"""Files of the wrong kind, in each place of each command: an error in words, never an exception of Python."""

import re
from pathlib import Path

import pytest

from caffejax.cli import main

REPOSITORY = Path(__file__).parents[2]
COMMANDS = (
    *("check", "summary", "predict", "export", "classify", "extract_features", "parse_log", "plot", "draw_net"),
    *("upgrade_net_proto_text", "upgrade_solver_proto_text", "compute_image_mean", "convert_imageset"),
)
FILES = ("missing", "folder", "empty", "net.prototxt", "solver.prototxt", "image.png", "bad.caffemodel", "text.txt", "")
_RAW_ERROR = re.compile(r"Traceback|\b(Index|Type|Key|Attribute|Value|Unicode\w*)Error\b")


@pytest.fixture
def _files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("folder").mkdir()
    Path("empty").touch()
    Path("net.prototxt").write_text((REPOSITORY / "configs" / "lenet" / "train_val.prototxt").read_text())
    Path("solver.prototxt").write_text('net: "net.prototxt" base_lr: 0.01 lr_policy: "fixed" max_iter: 1')
    Path("image.png").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(40))
    Path("bad.caffemodel").write_bytes(b"\xff" * 50)
    Path("text.txt").write_text("hello\n")


@pytest.mark.usefixtures("_files")
@pytest.mark.parametrize(
    "file", [pytest.param(file, marks=[] if file in ("folder", "image.png") else pytest.mark.long) for file in FILES]
)
def test_files_of_the_wrong_kind_are_errors_in_words(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    raw_errors = []
    for command in COMMANDS:
        for arguments in ([file], ["net.prototxt", file], [file, "bad.caffemodel", "out/of/reach"]):
            try:
                main([command, *arguments])
            except SystemExit:
                pass
            except Exception as error:
                raw_errors.append(f"{command} {arguments}: {error!r}")
            text = "".join(capsys.readouterr())
            if _RAW_ERROR.search(text):
                raw_errors.append(f"{command} {arguments}: {text}")
    assert raw_errors == []
