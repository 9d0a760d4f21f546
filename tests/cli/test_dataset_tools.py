"""Tools that convert MNIST, CIFAR-10 and lists; and the programs in build/ that run them."""

import gzip
import os
import stat
import struct
import subprocess
from pathlib import Path

import cv2
import numpy as np
import pytest

from caffejax.base.databases import LevelDb, Lmdb
from caffejax.cli import main
from caffejax.core.schema.caffe_pb2 import Datum
from caffejax.forks.detection.data.annotation_files import read_label_map

READERS = {"lmdb": Lmdb, "leveldb": LevelDb}


@pytest.fixture(autouse=True)
def use_temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def run_with_error(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(arguments) == 1
    return "\n".join(line for line in capsys.readouterr().err.splitlines() if line.startswith("caffejax:"))


def read_records(folder: str, backend: str) -> list[tuple[bytes, Datum]]:
    return [(key, Datum.FromString(value)) for key, value in READERS[backend](folder)]


def write_mnist(count: int = 7) -> tuple[np.ndarray, np.ndarray]:
    images = np.random.default_rng(count).integers(0, 256, (count, 3, 4), np.uint8)
    labels = np.array([3, 200, *range(count - 2)], np.uint8)
    Path("images").write_bytes(struct.pack(">IIII", 2051, *images.shape) + images.tobytes() + b"more")
    Path("labels").write_bytes(struct.pack(">II", 2049, count) + labels.tobytes())
    return images, labels


@pytest.mark.parametrize(("flags", "backend"), [([], "lmdb"), (["--backend", "leveldb"], "leveldb")])
def test_convert_mnist_data_stores_images_and_caffes_labels(flags: list[str], backend: str) -> None:
    images, labels = write_mnist()
    assert main(["convert_mnist_data", "images", *flags, "labels", "db"]) == 0
    for index, (key, datum) in enumerate(read_records("db", backend)):
        assert key == b"%08d" % index
        label = int(labels[index]) - 256 * (labels[index] > 127)  # Caffe reads a label as a `char`
        assert datum == Datum(channels=1, height=3, width=4, data=images[index].tobytes(), label=label)
        assert not datum.HasField("encoded")
    assert index == 6


def test_mnist_pairs_are_labelled_by_equality() -> None:
    images, labels = write_mnist(50)
    for name, flags in ("a", []), ("b", ["--seed=0"]), ("c", ["--seed=1"]):
        assert main(["convert_mnist_siamese_data", *flags, "images", "labels", name]) == 0
    assert read_records("a", "leveldb") == read_records("b", "leveldb") != read_records("c", "leveldb")
    index_by_image = {image.tobytes(): index for index, image in enumerate(images)}
    num_equal = 0
    for index, (key, datum) in enumerate(read_records("a", "leveldb")):
        assert key == b"%08d" % index
        assert (datum.channels, datum.height, datum.width) == (2, 3, 4)
        first_index, second_index = (index_by_image[datum.data[i : i + 12]] for i in (0, 12))
        assert datum.label == (labels[first_index] == labels[second_index])
        num_equal += datum.label
    assert 0 <= num_equal < 25


@pytest.mark.parametrize("backend", READERS)
def test_convert_cifar_data_stores_both_parts(backend: str) -> None:
    rng = np.random.default_rng(0)
    batches = {f"data_batch_{i}": rng.integers(0, 10, (2, 3073), np.uint8) for i in range(1, 6)}
    batches["test_batch"] = rng.integers(0, 10, (3, 3073), np.uint8)
    for name, rows in batches.items():
        Path(f"{name}.bin").write_bytes(rows.tobytes())
    assert main(["convert_cifar_data", ".", ".", backend]) == 0
    test_rows = batches.pop("test_batch")
    for name, rows in ("train", np.concatenate(list(batches.values()))), ("test", test_rows):
        for index, (key, datum) in enumerate(read_records(f"cifar10_{name}_{backend}", backend)):
            assert key == b"%05d" % index
            assert datum == Datum(
                channels=3, height=32, width=32, label=int(rows[index, 0]), data=rows[index, 1:].tobytes()
            )
        assert index + 1 == len(rows)


def test_damaged_files_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ("convert_mnist_data", "images", "labels", "db")
    write_mnist()
    images_file = Path("images").read_bytes()
    for content, message in [
        (images_file[:60], "its header announces 7 x 3 x 4 bytes of data, but 44 follow"),
        (images_file[:9], "is not an IDX file of images, which begins with the number 2051"),
        (Path("labels").read_bytes(), "is not an IDX file of images"),
        (gzip.compress(images_file), "unpack it with gunzip"),
        (struct.pack(">IIII", 2051, 7, 0, 4), "7 x 0 x 4"),
        (struct.pack(">IIII", 2051, 6, 1, 1) + bytes(6), "images has 6 images, but labels has 7 labels"),
    ]:
        Path("images").write_bytes(content)
        assert message in run_with_error(capsys, *arguments)
    assert "none: no such file" in run_with_error(capsys, "convert_mnist_data", "none", "labels", "db")
    Path("data_batch_1.bin").write_bytes(bytes(3072))
    assert "data_batch_1.bin: has 3072 bytes" in run_with_error(capsys, "convert_cifar_data", ".", ".", "lmdb")
    assert not Path("db").exists()


def test_get_image_size_lists_heights_and_widths(capsys: pytest.CaptureFixture[str]) -> None:
    Path("pictures").mkdir()
    for name, shape in {"a.b.png": (5, 7), "c.jpg": (9, 2)}.items():
        cv2.imwrite(f"pictures/{name}", np.zeros((*shape, 3), np.uint8))
    Path("list").write_text("a.b.png a.xml\nc.jpg 3\n")
    Path("ids").write_text("c 12\na.b 40\n")
    for root, flags, expected in [
        ("pictures/", [], "a.b 5 7\nc 9 2\n"),
        ("pictures", ["--name_id_file=ids"], "40 5 7\n12 9 2\n"),
    ]:
        assert main(["get_image_size", *flags, root, "list", "sizes"]) == 0
        assert Path("sizes").read_text() == expected
    for ids, message in (
        ("c 12\nd 4", "has no number for image 'a.b'"),
        ("c 1 c 2", "'c' twice"),
        ("c", "a name and a number"),
    ):
        Path("ids").write_text(ids)
        assert message in run_with_error(capsys, "get_image_size", "--name_id_file=ids", "pictures/", "list", "sizes")


@pytest.mark.parametrize(
    ("text", "flags", "expected"),
    [
        ("cat\ndog\n", [], {"cat": 0, "dog": 1}),
        ("cat\ndog\n", ["--include_background=T"], {"none_of_the_above": 0, "cat": 1, "dog": 2}),
        ("cat 5\ndog 2\n", [], {"cat": 5, "dog": 2}),
        ("cat:5;big cat\ndog:2;small dog\n", ["--delimiter=:;"], {"cat": 5, "dog": 2}),
    ],
)
def test_create_label_map_numbers_the_names(text: str, flags: list[str], expected: dict[str, int]) -> None:
    Path("names").write_text(text)
    assert main(["create_label_map", *flags, "names", "map"]) == 0
    assert read_label_map(Path("map")) == expected
    assert ("big cat" in Path("map").read_text()) == ("big" in text)


def test_label_maps_with_other_lines_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    for text, message in ("a 1\nb\n", "names:2: 'b' is not a name and a number"), ("a b", "'a b' is not a name and"):
        Path("names").write_text(text)
        assert message in run_with_error(capsys, "create_label_map", "names", "map")


def test_programs_run_from_any_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = tmp_path / "a caffe"
    root.mkdir()
    assert main(["tools", str(root)]) == 0
    contents_before = {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}
    for name in ("tools/caffe", "tools/convert_imageset.bin", "examples/mnist/convert_mnist_data.bin"):
        assert os.stat(root / "build" / name).st_mode & stat.S_IXUSR
    write_mnist()
    (tmp_path / "struct.py").write_text("raise SystemExit('this is not the struct of Python')")
    command = [root / "build/examples/mnist/convert_mnist_data.bin", "images", "labels", "db", "-backend=lmdb"]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    subprocess.run(command, check=True, env=environment, capture_output=True)
    assert len(read_records("db", "lmdb")) == 7
    train_net_result = subprocess.run(
        [root / "build/tools/train_net.bin", "solver"], capture_output=True, text=True, check=False
    )
    assert (train_net_result.returncode, train_net_result.stderr) == (
        1,
        "train_net: use caffe train --solver=... [--snapshot=...]\n",
    )
    assert main(["tools", str(root)]) == 0  # its own programs are written again
    assert {path: path.read_bytes() for path in contents_before} == contents_before


def test_foreign_programs_are_replaced_only_with_the_flag(capsys: pytest.CaptureFixture[str]) -> None:
    Path("build/tools").mkdir(parents=True)
    Path("build/tools/caffe.bin").write_bytes(b"\x7fELF")
    Path("build/tools/caffe").symlink_to("caffe.bin")
    message = run_with_error(capsys, "tools", ".")
    assert "build/tools/caffe, build/tools/caffe.bin: not written by `caffejax tools`" in message
    assert sorted(path.name for path in Path("build").rglob("*")) == ["caffe", "caffe.bin", "tools"]
    assert main(["tools", ".", "--replace"]) == 0
    assert "Replaced build/tools/caffe.bin\n" in capsys.readouterr().out
    assert not Path("build/tools/caffe").is_symlink()


def test_the_folder_of_the_programs_is_created(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tools", "new/caffe"]) == 0
    assert Path("new/caffe/build/tools/caffe").is_file()
    Path("file").write_text("")
    for folder in ("file", "file/caffe"):
        capsys.readouterr()
        assert "file" in run_with_error(capsys, "tools", folder)
    assert "file is not a folder" in run_with_error(capsys, "tools", "file")
