"""The folders of the demos, and the commands that the demos print."""

import shlex
from pathlib import Path

import cv2
import pytest

from caffejax.base.databases.lmdb import Lmdb
from caffejax.cli import main
from caffejax.core.schema import caffe_pb2


@pytest.mark.parametrize(
    ("name", "size", "records"), [("digits", 28, (1437, 360)), ("shapes", 96, (600, 150)), ("face", 96, (600, 150))]
)
def test_the_folder_has_data_and_pictures(
    name: str, size: int, records: tuple[int, int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "demo"
    assert main(["demo", name, str(folder), "--copy_only"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"cd {folder}"
    for line in lines[1:]:
        words = [word.removeprefix("--solver=") for word in shlex.split(line) if not word.startswith("--out=")]
        assert all((folder / word).exists() for word in words if word.endswith((".prototxt", ".png")))
    database_prefix = "digits" if name == "digits" else "shapes"
    assert cv2.imread(str(folder / f"{name}_3.png")).shape == (size, size, 3)
    assert tuple(len(Lmdb(folder / f"{database_prefix}_{split}_lmdb")) for split in ("train", "test")) == records
    assert main(["demo", name, str(folder)]) == 1
    assert capsys.readouterr().err.endswith("already exists; name a new folder\n")
    orbax = "snapshots/lenet.orbax" if name == "digits" else "snapshots/ssd_shapes.orbax"
    (folder / orbax / "100").mkdir(parents=True)
    assert main(["demo", name, str(folder)]) == 1
    assert capsys.readouterr().err.endswith(f"--snapshot={orbax}\n")


@pytest.mark.parametrize("path", ["file/x", "file", "n" * 300])
def test_a_folder_that_cannot_be_written_is_reported(
    path: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    assert main(["demo", "digits", str(tmp_path / path)]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"caffejax: {tmp_path / path}")


@pytest.mark.parametrize("name", ["shapes", "face"])
def test_objects_are_inside_of_their_boxes(name: str, tmp_path: Path) -> None:
    assert main(["demo", name, str(tmp_path / "demo"), "--copy_only"]) == 0
    for _, record in Lmdb(tmp_path / "demo" / "shapes_test_lmdb").read_range(0, 20):
        datum = caffe_pb2.AnnotatedDatum.FromString(record)
        boxes = [a.bbox for group in datum.annotation_group for a in group.annotation]
        assert 1 <= len(boxes) <= 4
        assert all(0 <= box.xmin < box.xmax <= 1 and 0 <= box.ymin < box.ymax <= 1 for box in boxes)


@pytest.mark.long
def test_digits_are_trained_and_predicted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["demo"]) == 0
    captured = capfd.readouterr()
    assert "Optimization Done." in captured.err
    assert captured.out.count("digits_") >= 4
    assert len(list(Path("caffejax_digits", "predicted").glob("*.png"))) == 4
