"""Mistakes in each argument of each command: an error in words that names it, never an exception of Python."""

import argparse
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import cv2
import numpy as np
import pytest

from caffejax import NetConfig, cli
from caffejax.base.databases import write_lmdb
from caffejax.cli import main
from caffejax.core.schema import caffe_pb2
from caffejax.tools.model_check import check
from caffejax.tools.model_check.check_report import Report

# commands that work: "<" before a file or folder that is read, ">" before one that is written, "@" before a name
COMMANDS = {
    "train": (
        "<solver.prototxt --weights=<net.caffemodel --metrics=>metrics.jsonl",
        "<solver.prototxt --snapshot=<net.solverstate --tensorboard=>events",
    ),
    "test": ("<train.prototxt --weights=<net.caffemodel --iterations=1",),
    "predict": (
        "<deploy.prototxt <cat.png --weights=<net.caffemodel --labels=<labels.txt --output=@prob --mean=<mean.npy",
        "<deploy.prototxt <cat.png --weights=<net.caffemodel --out=>out.png --size=6,6",
    ),
    "time": ("<train.prototxt --weights=<net.caffemodel --iterations=1",),
    "check": ("<train.prototxt --weights=<net.caffemodel --html=>report.html --jobs=1",),
    "summary": ("<deploy.prototxt",),
    "view": ("<deploy.prototxt --out=>view.html",),
    "draw": (
        "<deploy.prototxt --out=>net.dot",
        "<deploy.prototxt --filters --layer=@conv --weights=<net.caffemodel --out=>filters.png",
        "<deploy.prototxt --blob=@conv --image=<cat.png --weights=<net.caffemodel --out=>maps.png --images_dim=6,6",
    ),
    "gradcheck": (
        "<train.prototxt --layers=@ip --weights=<net.caffemodel --samples=1",
        "<deploy.prototxt --layers=@ip --inputs=<inputs.npz --samples=1",
    ),
    "dump": ("<deploy.prototxt --weights=<net.caffemodel --inputs=<inputs.npz --out=>dump.npz",),
    "compare": (
        "<dumped.npz <dumped.npz --picture=>errors.png",
        "<dumped.npz --model=<deploy.prototxt",
    ),
    "export": (
        "<deploy.prototxt --weights=<net.caffemodel --outputs=@prob --to=flax --out=>exported",
        "<deploy.prototxt --weights=<net.caffemodel --outputs=@prob --batch=1 --to=>net.onnx",
    ),
    "convert": ("--from=<net.caffemodel --model=<deploy.prototxt --to=>net.npz",),
    "plan": ("<deploy.prototxt --target=@cuda:a100:1 --largest=none --scaling=1",),
    "plot": ("<train.log --out=>curves.png --names=@loss",),
    "demo": ("digits >job --copy_only",),
    "layers": ("@Convolution",),
    "run": ("<script.py",),
    "upgrade": ("<deploy.prototxt >new.prototxt",),
    "info": ("",),
    "completion": ("@bash",),
    "classify": (
        "<cat.png >scores.npy --model_def=<deploy.prototxt --pretrained_model=<net.caffemodel --mean_file=<mean.npy "
        "--images_dim=6,6 --center_only",
    ),
    "classification": ("<deploy.prototxt <net.caffemodel <mean.binaryproto <labels.txt <cat.png",),
    "ssd_detect": (
        "<boxes.prototxt <net.caffemodel <frames.txt --mean_file=<mean.binaryproto --out_file=>found.txt",
        "<boxes.prototxt <net.caffemodel <frames.txt --confidence_threshold=0.5",
    ),
    "detect": (
        "<windows.csv >windows_out.csv --model_def=<deploy.prototxt --pretrained_model=<net.caffemodel "
        "--mean_file=<mean.npy --context_pad=0",
    ),
    "extract_features": ("<net.caffemodel <train.prototxt @ip >features 1 lmdb",),
    "convert_imageset": ("<images/ <list.txt >database",),
    "convert_annoset": ("<images/ <boxes.txt >boxes --anno_type=detection --label_map_file=<map.prototxt",),
    "convert_imageset_and_flow": ("<pairs.txt >flow_pairs",),
    "convert_mnist_data": ("<images.idx <labels.idx >digits",),
    "convert_mnist_siamese_data": ("<images.idx <labels.idx >pairs",),
    "convert_cifar_data": ("<cifar >. lmdb",),
    "compute_image_mean": ("<lmdb >mean.binaryproto",),
    "create_label_map": ("<labels.txt >map_out.prototxt",),
    "get_image_size": ("<images/ <list.txt >sizes.txt",),
    "parse_log": ("<train.log >.",),
    "plot_training_log": ("@6 >loss.png <train.log",),
    "draw_net": ("<deploy.prototxt >net.dot",),
    "device_query": ("--gpu=@",),
    "tools": (">tools",),
    "collect": ("<deploy.prototxt --weights=<net.caffemodel --inputs=<inputs.npz --out=>dump.npz",),
    "upgrade_net_proto_text": ("<deploy.prototxt >new.prototxt",),
    "upgrade_net_proto_binary": ("<net.caffemodel >new.caffemodel",),
    "upgrade_solver_proto_text": ("<solver.prototxt >new.prototxt",),
}
WRONG = {
    "<": (
        *("missing.file", "folder", "empty", "image.png", "noise.npz", "noise.caffemodel", "text.txt", "latin.txt", ""),
        *("list.txt", "solver.prototxt", "deploy.prototxt", "other.caffemodel", "huge.png", "net.solverstate"),
    ),
    ">": ("nowhere/out", "text.txt/out", "folder", "/sys/out", ""),
    "@": ("nowhere", "", ",", "Ünknown"),
}
SIZES = ("-1,5", "0,0", "a,b", "5", "5,5,5", "1,1", "", "99999999999,99999999999")
NUMBERS = ("-1", "0", "x", "nan", "-0.5", "", "1e400", "99999999999999999999")
MODULES = ("unparsable", "raising", "exiting", "not_utf8", "needs_absent", "a-b", "x.py", "absent")
_MAY_TAKE_LONG = {"iterations", "workers", "jobs", "samples", "processes", "start_timeout", "size"}
_OTHER_REASONS = {  # for not coming to the mistake
    "gradcheck": ("no layer has a bottom",),
    "plan": ("CUDA plugin", "train.prototxt: "),
    "detect": ("selective search",),
    "convert_annoset": ("resized by a factor",),
}
_REPORTS = ("check", "view")  # show the problems on a page, too
_NO_NUMBERS = {"weights", "gpu", "delimiter", "channel_swap", "images_dim"}
_RAW_ERROR = re.compile(r"Traceback|\b[A-Z]\w*(Error|Exception|Iteration)\b")

NET = """
layer { name: "conv" type: "Convolution" bottom: "data" top: "conv" convolution_param { num_output: 2 kernel_size: 3
  weight_filler { type: "xavier" } } }
layer { name: "ip" type: "InnerProduct" bottom: "conv" top: "ip" inner_product_param { num_output: 3
  weight_filler { type: "xavier" } } }
"""
INPUT = 'layer { name: "in" type: "Input" top: "data" input_param { shape { dim: 1 dim: 3 dim: 6 dim: 6 } } }'
DUMMY = """layer { name: "in" type: "DummyData" top: "data" top: "label" dummy_data_param {
  shape { dim: 2 dim: 3 dim: 6 dim: 6 } shape { dim: 2 } } }"""
LOSS = 'layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }'
BOXES = """layer { name: "box" type: "InnerProduct" bottom: "conv" top: "box"
  inner_product_param { num_output: 7 } }"""
PROB = 'layer { name: "prob" type: "Softmax" bottom: "ip" top: "prob" }'


@dataclass(frozen=True)
class Mistake:
    """Arguments of a command, the kind of the mistake in them, and the words of which the message has one."""

    arguments: tuple[str, ...]
    kind: str
    words: tuple[str, ...]

    @property
    def must_fail(self) -> bool:
        """Whether the mistake is one for every command; others may be arguments that a command can work with."""
        return self.kind.startswith("module") or self.kind in (
            "number x",
            "<missing.file",
            ">text.txt/out",
            ">/sys/out",
        )


def _list_mistakes() -> Iterator[Mistake]:
    for name, parser in cli.make_parser().subparsers.items():
        for template in COMMANDS[name]:
            words = template.split()
            for i, word in enumerate(words):
                flag, mark, value = re.fullmatch(r"(?:(.*)=)?([<>@]?)(.*)", word).groups()  # type: ignore[union-attr]
                wrong = WRONG.get(mark, SIZES if flag in ("--size", "--images_dim") else ())
                for bad in wrong:
                    if (name, bad) == ("run", "text.txt"):  # it is Python, and fails as Python does
                        continue
                    ending = Path(value).suffix if mark == ">" and bad and bad[-3:] == "out" else ""
                    changed = [*words[:i], f"{flag}={bad}{ending}" if flag else bad + ending, *words[i + 1 :]]
                    named = (bad, bad.split(",")[0], value if mark else "", flag.lstrip("-") if flag else "arguments")
                    names = tuple(filter(None, named)) if bad else ("",)
                    yield Mistake((name, *map(_plain, changed)), f"{mark}{bad}", names)
        plain = tuple(map(_plain, COMMANDS[name][0].split()))
        for action in parser._actions:
            if action.type is None or action.choices or not action.option_strings or action.dest in _NO_NUMBERS:
                continue
            flag = action.option_strings[0]
            is_module = isinstance(action, argparse._AppendAction)
            for bad in MODULES if is_module else NUMBERS:
                if len(bad) < 9 or is_module or action.dest not in _MAY_TAKE_LONG:
                    kind = "module" if is_module else "number"
                    yield Mistake(
                        (name, *plain, f"{flag}={bad}"), f"{kind} {bad}", (flag.lstrip("-"), action.dest, bad)
                    )


def _plain(word: str) -> str:
    return re.sub(r"(^|=)[<>@]", r"\1", word)


def _group_mistakes() -> list[object]:
    """Return the mistakes by command. In the default run, there is one of each kind for each command."""
    cases: list[object] = []
    for name, group in groupby(_list_mistakes(), key=lambda mistake: mistake.arguments[0]):
        mistakes = list(group)
        marks: dict[str, Mistake] = {}
        for i, mistake in enumerate(mistakes):  # another member of each kind for each command
            if (i + len(name)) % 5 == 0 or mistake.kind[:1] not in marks:
                marks[mistake.kind[:1]] = mistake
        quick = list(marks.values())
        cases += [pytest.param(quick, id=name)]
        cases += [pytest.param([m for m in mistakes if m not in quick], id=f"all of {name}", marks=pytest.mark.long)]
    return cases


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder of all files that the commands read; it is the working directory."""
    folder = tmp_path_factory.mktemp("mistakes")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        _write_files()
        yield folder


def _write_files() -> None:
    Path("folder").mkdir()
    Path("folder/file.txt").write_text("kept")
    Path("empty").touch()
    Path("image.png").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(40))
    cv2.imwrite("cat.png", np.arange(192, dtype=np.uint8).reshape(8, 8, 3))
    Path("huge.png").write_bytes(_declare_size(Path("cat.png").read_bytes(), 60_000))
    Path("noise.caffemodel").write_bytes(b"\xff" * 50)
    Path("noise.npz").write_bytes(b"PK\x03\x04" + bytes(50))
    Path("text.txt").write_text("hello\n")
    Path("latin.txt").write_bytes('name: "Größe" \'é\n'.encode("latin-1"))
    Path("deploy.prototxt").write_text(INPUT + NET + PROB)
    Path("boxes.prototxt").write_text(INPUT + NET.partition('layer { name: "ip"')[0] + BOXES)
    Path("frames.txt").write_text("cat.png\n")
    Path("mean.binaryproto").write_bytes(
        caffe_pb2.BlobProto(num=1, channels=3, height=1, width=1, data=[104, 117, 123]).SerializeToString()
    )
    Path("train.prototxt").write_text(DUMMY + NET + LOSS)
    Path("solver.prototxt").write_text(
        'net: "train.prototxt" base_lr: 0.01 lr_policy: "fixed" max_iter: 1 snapshot_prefix: "net" display: 1\n'
        "solver_mode: CPU random_seed: 1"
    )
    assert main(["train", "solver.prototxt", "--metrics=train.log"]) == 0
    for suffix in ("caffemodel", "solverstate"):
        shutil.copy(f"net_iter_1.{suffix}", f"net.{suffix}")
    Path("solver.prototxt").write_text(Path("solver.prototxt").read_text() + " snapshot_after_train: false")
    other = caffe_pb2.NetParameter()
    blob = other.layer.add(name="ip").blobs.add()
    blob.shape.dim[:] = [7]
    blob.data[:] = [0] * 7
    Path("other.caffemodel").write_bytes(other.SerializeToString())
    Path("labels.txt").write_text("cat\ndog\nfish\n")
    Path("map.prototxt").write_text('item { name: "cat" label: 1 display_name: "cat" }')
    Path("script.py").write_text("")
    np.save("mean.npy", np.zeros((3, 6, 6), np.float32))
    np.savez("inputs.npz", data=np.ones((1, 3, 6, 6), np.float32))
    assert main(["dump", "deploy.prototxt", "--out=dumped.npz"]) == 0
    Path("windows.csv").write_text("filename,ymin,xmin,ymax,xmax\ncat.png,0,0,8,8\n")
    Path("images").mkdir()
    shutil.copy("cat.png", "images/cat.png")
    Path("list.txt").write_text("cat.png 1\n")
    Path("images/cat.xml").write_text("<annotation><size><width>8</width><height>8</height></size></annotation>")
    Path("boxes.txt").write_text("cat.png cat.xml\n")
    Path("pairs.txt").write_text("cat.png cat.png\n")
    Path("images.idx").write_bytes(bytes([0, 0, 8, 3, 0, 0, 0, 4, 0, 0, 0, 2, 0, 0, 0, 2]) + bytes(16))
    Path("labels.idx").write_bytes(bytes([0, 0, 8, 1, 0, 0, 0, 4]) + bytes(4))
    Path("cifar").mkdir()
    for name in (*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"):
        Path(f"cifar/{name}.bin").write_bytes(bytes(3073 * 10_000))
    write_lmdb("lmdb", [(b"0", caffe_pb2.Datum(channels=1, height=2, width=2, data=bytes(4)).SerializeToString())])
    Path("unparsable.py").write_text("def f(:\n")
    Path("raising.py").write_text("{}['key']\n")
    Path("exiting.py").write_text("import sys\nsys.exit()\n")
    Path("not_utf8.py").write_bytes(b"x = '\xff'\n")
    Path("needs_absent.py").write_text("import absent_module\n")


def _declare_size(png: bytes, size: int) -> bytes:
    import zlib

    header = b"IHDR" + size.to_bytes(4) * 2 + png[24:29]
    return png[:12] + header + zlib.crc32(header).to_bytes(4) + png[33:]


def _list_files(folder: Path) -> dict[Path, bytes | int]:
    """Return the contents of all small files, and the sizes of others."""
    files = [(path, path.stat().st_size) for path in folder.rglob("*") if path.is_file()]
    return {path: path.read_bytes() if size < 10**6 else size for path, size in files}


def _restore(folder: Path, files: dict[Path, bytes | int]) -> bool:
    """Restore the folder's files and remove new files and folders; return whether there was anything to do."""
    after = _list_files(folder)
    for path, content in files.items():
        if after.get(path) != content and isinstance(content, bytes):
            path.write_bytes(content)
    for path in after.keys() - files.keys():
        path.unlink()
    folders = {parent for path in files for parent in path.parents}
    for path in sorted(folder.rglob("*"), reverse=True):
        if path.is_dir() and path not in folders:
            path.rmdir()
    return after != files


def _run(arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    if arguments[0] == "run":  # has the process import caffejax as caffe until it ends
        command = [sys.executable, "-m", "caffejax", *arguments]
        process = subprocess.run(command, capture_output=True, text=True)
        return process.returncode, process.stdout + process.stderr
    try:
        code = main(arguments)
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 0
    except Exception as error:
        return -1, "".join(capsys.readouterr()) + repr(error)
    return code, "".join(capsys.readouterr())


def _check_in_this_process(worker: object, path: Path, weights: list[str], config: NetConfig, timeout: float) -> Report:
    return check.check_file(path, weights, config)


@pytest.mark.parametrize("mistakes", _group_mistakes())
def test_a_mistake_is_an_error_in_words(
    mistakes: list[Mistake], folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", sys.path[:])
    # what Python keeps of an imported module is no file that a command writes
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    faults = []
    for mistake in mistakes:
        files = _list_files(folder)
        with monkeypatch.context() as patch:
            if not mistake.kind.startswith("module"):  # modules are imported by the processes, which take a second each
                patch.setattr(check._Worker, "check", _check_in_this_process)
            code, text = _run(mistake.arguments, capsys)
        is_error = code in (1, 2)
        is_named = any(word in text for word in (*mistake.words, *_OTHER_REASONS.get(mistake.arguments[0], ())))
        has_type = is_error and not mistake.kind.startswith("module") and _RAW_ERROR.search(text)
        is_raw = code not in (0, 1, 2) or "Traceback" in text or has_type
        writes = _restore(folder, files) and is_error and mistake.arguments[0] not in _REPORTS
        if is_raw or writes or (is_error and not is_named) or (mistake.must_fail and not is_error):
            faults.append(f"{' '.join(mistake.arguments)}: exit code {code}, writes: {writes}; {text[-800:]}")
    assert not faults, "\n\n".join(faults)


@pytest.mark.long
@pytest.mark.parametrize("name", [n for n in COMMANDS if n not in ("run", "plan")])
def test_the_commands_work_without_a_mistake(name: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for template in COMMANDS[name]:
        code, text = _run((name, *map(_plain, template.split())), capsys)
        assert code == 0, f"{template}: {text}"


def test_each_command_has_mistakes() -> None:
    assert set(COMMANDS) == set(cli.make_parser().subparsers)
