"""Examples in docstrings, and those that the commands' --help shows, run unchanged, with small files and nets."""

import ast
import contextlib
import importlib
import inspect
import re
import shlex
import shutil
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import cv2
import jax
import numpy as np
import optax
import pytest
from documentation_pages import REPOSITORY

import caffejax
from caffejax import cli
from caffejax.base.databases.lmdb import write_lmdb
from caffejax.core.layers import layer_types, registry
from caffejax.core.schema.caffe_pb2 import BlobProto, Datum, NetParameter, V1LayerParameter
from caffejax.pycaffe import Layer, layers, params
from caffejax.tools.debugging.dumps import record_dump, write_dump

PACKAGE = Path(caffejax.__file__).parent
IMAGE_SHAPE = 3, 40, 40  # of deploy.prototxt

BODY = """
layer { name: "conv1" type: "Convolution" bottom: "data" top: "conv1"
  convolution_param { num_output: 4 kernel_size: 3 weight_filler { type: "xavier" } } }
layer { name: "norm1" type: "LRN" bottom: "conv1" top: "norm1" }
layer { name: "pool1" type: "Pooling" bottom: "norm1" top: "pool1" pooling_param { pool: AVE global_pooling: true } }
layer { name: "fc7" type: "InnerProduct" bottom: "pool1" top: "fc7"
  inner_product_param { num_output: 5 weight_filler { type: "xavier" } } }
layer { name: "ip2" type: "InnerProduct" bottom: "fc7" top: "ip2"
  inner_product_param { num_output: 3 weight_filler { type: "xavier" } } }
layer { name: "prob" type: "Softmax" bottom: "ip2" top: "prob" }
"""
DEPLOY = 'layer { name: "data" type: "Input" top: "data" input_param { shape { dim: [1, 3, 40, 40] } } }' + BODY
TRAIN_VAL = f"""
layer {{ name: "data" type: "Data" top: "data" top: "label"
  data_param {{ source: "digits_lmdb" batch_size: 2 backend: LMDB }} }}
{BODY}
layer {{ name: "loss" type: "SoftmaxWithLoss" bottom: "ip2" bottom: "label" top: "loss" }}
"""
SOLVER = 'net: "train_val.prototxt" base_lr: 0.01 lr_policy: "fixed" max_iter: 2 display: 1 snapshot_prefix: "net"'
OLD_NET = 'input: "data" input_dim: [1, 3, 8, 8] layers { name: "r" type: RELU bottom: "data" top: "r" }'
LOG = """I0131 23:59:59.000000  4242 solver.cpp:279] Solving LeNet
I0201 00:00:00.500000  4242 solver.cpp:337] Iteration 0, Testing net (#0)
I0201 00:00:00.500000  4242 solver.cpp:404]     Test net output #0: accuracy = 0.1
I0201 00:00:00.500000  4242 solver.cpp:404]     Test net output #1: loss = 2.5 (* 1 = 2.5 loss)
I0201 00:00:01.000000  4242 solver.cpp:228] Iteration 0, loss = 2.4
I0201 00:00:01.250000  4242 solver.cpp:244]     Train net output #0: loss = 2.25 (* 1 = 2.25 loss)
I0201 00:00:01.500000  4242 sgd_solver.cpp:106] Iteration 0, lr = 0.01
I0201 00:00:02.000000  4242 solver.cpp:228] Iteration 100, loss = 1.5
I0201 00:00:02.000000  4242 solver.cpp:244]     Train net output #0: loss = 1.5 (* 1 = 1.5 loss)
I0201 00:00:02.500000  4242 sgd_solver.cpp:106] Iteration 100, lr = 0.01
"""
ANNOTATION = """<annotation><size><width>40</width><height>20</height><depth>3</depth></size><object><name>cat</name>
<bndbox><xmin>10</xmin><ymin>5</ymin><xmax>20</xmax><ymax>15</ymax></bndbox></object></annotation>"""
SCRIPT = """import sys
import caffe
print(caffe.Net.__module__.rpartition(".")[0], sys.argv[1:])
"""


@pytest.fixture(scope="module")
def prepared_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files that examples read."""
    folder = tmp_path_factory.mktemp("examples")
    with contextlib.chdir(folder):
        _write_files()
    return folder


def _write_files() -> None:
    random = np.random.default_rng(0)
    Path("configs").symlink_to(REPOSITORY / "configs")
    for name in "snapshots", "models", "my_net", "images", "VOCdevkit", "cifar-10-batches-bin":
        Path(name).mkdir()
    nets = dict.fromkeys(("deploy", "models/deploy", "my_net/deploy"), DEPLOY)
    nets |= {"train_val": TRAIN_VAL, "net": TRAIN_VAL, "solver": SOLVER, "old": OLD_NET}
    for name, text in nets.items():
        Path(f"{name}.prototxt").write_text(text)
    records = [Datum(channels=3, height=8, width=8, data=random.bytes(192), label=i % 3) for i in range(4)]
    for name in "digits_lmdb", "train_lmdb":
        write_lmdb(name, [(b"%08d" % i, record.SerializeToString()) for i, record in enumerate(records)])
    net = caffejax.Net("train_val.prototxt", "TRAIN")
    variables = net.init(jax.random.key(0))
    net.save(*variables, "net.caffemodel")
    write_dump("caffe.npz", record_dump(net, variables))
    lenet = caffejax.Net("configs/digits/lenet_train_test.prototxt", "TEST")
    lenet.save(*lenet.init(jax.random.key(0)), "snapshots/lenet_iter_1000.caffemodel")
    shutil.copy("snapshots/lenet_iter_1000.caffemodel", ".")
    old_net = NetParameter()
    old_net.layers.add(name="r", type=V1LayerParameter.RELU, bottom=["data"], top=["r"])
    Path("old.caffemodel").write_bytes(old_net.SerializeToString())
    for name in "cat.jpg", "images/0.png", "images/1.png", "VOCdevkit/0.jpg":
        cv2.imwrite(name, random.integers(0, 256, (20, 40, 3), np.uint8))
    Path("VOCdevkit/0.xml").write_text(ANNOTATION)
    np.save("mean.npy", np.full(IMAGE_SHAPE, 100, np.float32))
    Path("mean.binaryproto").write_bytes(
        BlobProto(num=1, channels=3, height=1, width=1, data=[100, 100, 100]).SerializeToString()
    )
    texts = {
        "train.txt": "0.png 0\n1.png 1\n",
        "test.txt": "0.jpg 0.xml\n",
        "trainval.txt": "0.jpg 0.xml\n",
        "FlyingChairs.list": "images/0.png images/1.png\n",
        "names.txt": "cat\ndog\n",
        "labelmap.prototxt": 'item { name: "none" label: 0 } item { name: "cat" label: 1 }',
        "synset_words.txt": "cat\ndog\nbird\n",
        "windows.csv": "filename,ymin,xmin,ymax,xmax\ncat.jpg,2,3,12,30\n",
        "train.log": LOG,
        "caffe.log": LOG,
        "snapshots/lenet.metrics.jsonl": '{"event": "start", "iteration": 0, "seconds": 0}\n'
        '{"event": "train", "iteration": 0, "seconds": 2, "loss": 2.4, "lr": 0.01, "outputs": {"loss": 2.25}}\n',
        "classify.py": SCRIPT,
    }
    for name, text in texts.items():
        Path(name).write_text(text)
    Path("train-images-idx3-ubyte").write_bytes(struct.pack(">IIII", 2051, 5, 3, 4) + random.bytes(60))
    Path("train-labels-idx1-ubyte").write_bytes(struct.pack(">II", 2049, 5) + bytes(range(5)))
    for name in *(f"data_batch_{i}" for i in range(1, 6)), "test_batch":
        Path(f"cifar-10-batches-bin/{name}.bin").write_bytes(bytes(3073 * 2))


@pytest.fixture
def folder(prepared_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of the example's own, in which it starts, and which is its home."""
    shutil.copytree(prepared_folder, tmp_path, symlinks=True, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("CAFFEJAX_DEVICE", "cpu")  # for examples that name a GPU
    return tmp_path


# -- docstrings

DOCSTRING_BLOCKS_NOT_RUN = {
    "core.data.window_data": "the format of a file",
    "tools.debugging.dumps.dump": "the names of a dump's arrays",
    "core.layers.dtype_policy": "what the policies mean",
}


def find_docstring_blocks(text: str) -> Iterator[tuple[str, str]]:
    """Each indented block of each docstring of a module, dedented, with the object's qualified name."""
    pending: list[tuple[str, ast.AST]] = [("", ast.parse(text))]
    while pending:
        prefix, node = pending.pop()
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            for block in _split_blocks(ast.get_docstring(node) or ""):
                yield prefix, block
        for child in ast.iter_child_nodes(node):
            pending.append((f"{prefix}.{child.name}" if hasattr(child, "name") else prefix, child))


def _split_blocks(docstring: str) -> Iterator[str]:
    """Blocks that are indented by four spaces, except in sections such as Args."""
    lines: list[str] = []
    previous_line = ""  # the last one that is not empty
    for line in [*docstring.splitlines(), "end"]:
        is_indented = line.startswith("    ")
        if lines and not is_indented and line.strip():
            yield inspect.cleandoc("\n".join(["", *lines]))
            lines = []
        if lines or (is_indented and previous_line[:1].strip() and not re.fullmatch(r"\w+:", previous_line)):
            lines.append(line)
        previous_line = line if line.strip() else previous_line


class LossLayer(Layer):
    """Half the squared distance of its two bottoms."""

    def reshape(self, bottom: Any, top: Any) -> None:
        top[0].reshape(1)

    def forward(self, bottom: Any, top: Any) -> None:
        top[0].data[...] = np.sum((bottom[0].data - bottom[1].data) ** 2) / 2

    def backward(self, top: Any, propagate_down: Any, bottom: Any) -> None:
        difference = top[0].diff[0] * (bottom[0].data - bottom[1].data)
        bottom[0].diff[...], bottom[1].diff[...] = difference, -difference


@pytest.fixture(scope="module")
def names(prepared_folder: Path) -> dict[str, Any]:
    """The names that examples of docstrings use without a definition."""
    with contextlib.chdir(prepared_folder):
        net = caffejax.Net("train_val.prototxt", "TRAIN")
        variables = net.init(jax.random.key(0))
        images = np.ones((2, *IMAGE_SHAPE), np.float32)
        batch = {"data": images, "label": np.arange(2)}
    modules = {"caffejax": caffejax, "jax": jax, "optax": optax, "L": layers, "P": params}
    arrays = {"batch": batch, "inputs": batch, "images": images, "labels": batch["label"], "key": jax.random.key(1)}
    arrays |= {"augmented_pixels": images * 0.5, "image": np.zeros((20, 40, 3), np.uint8)}
    functions = {"MyLossLayer": LossLayer}
    return modules | arrays | functions | {"net": net, "params": variables.params, "state": variables.state}


def test_examples_of_docstrings_run(
    folder: Path, names: dict[str, Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the names of their module; only files and arrays are given."""
    layer_types()  # all are imported: a type that an example registers is in a copy
    monkeypatch.setattr(registry, "_types", layer_types())
    monkeypatch.setattr(registry, "_builtin_types", list(registry._builtin_types))
    runs, left_out = [], []
    for path in sorted([*PACKAGE.rglob("*.py"), *PACKAGE.rglob("*.pyi")]):
        text = path.read_text()
        assert ">>> " not in text, f"{path}: write the example as an indented block"
        module = ".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix("__init__").rstrip(".")
        for name, block in find_docstring_blocks(text):
            if module + name in DOCSTRING_BLOCKS_NOT_RUN:
                left_out.append(module + name)
                continue
            example_names = vars(importlib.import_module(f"caffejax.{module}".rstrip("."))) | names
            if module.startswith("core.solver."):
                solver = SimpleNamespace(train_state=SimpleNamespace(key=jax.random.key(0)))
                example_names |= {"grads": names["params"], "solver": solver, "iteration": 0}
            if module == "core.program.layer_function":
                example_names |= {"x": np.ones((2, 3, 8, 8), np.float32)}
            try:
                exec(compile(block, f"{module}{name}", "exec"), example_names)
            except Exception as error:
                raise AssertionError(f"the example of {module}{name} does not run: {error!r}\n{block}") from error
            runs.append(module + name)
    assert sorted(left_out) == sorted(DOCSTRING_BLOCKS_NOT_RUN)
    assert len(runs) >= 10


# -- the commands' help

# what a command writes; None for a command that only prints
OUTPUTS_OF_EXAMPLES: dict[str, str | None] = {
    "check": "report.html",
    "classification": None,
    "classify": "probabilities.npy",
    "collect": "A.npz",
    "compare": "error.png",
    "compute_image_mean": "mean.binaryproto",
    "convert": "lenet.npz",
    "convert_annoset": "trainval_lmdb/data.mdb",
    "convert_cifar_data": "cifar10_test_lmdb/data.mdb",
    "convert_imageset": "train_lmdb/data.mdb",
    "convert_imageset_and_flow": "FlyingChairs_lmdb/data.mdb",
    "convert_mnist_data": "mnist_train_lmdb/data.mdb",
    "convert_mnist_siamese_data": "pairs_leveldb/CURRENT",
    "create_label_map": "labelmap.prototxt",
    "detect": "detections.csv",
    "draw": "conv1.png",
    "draw_net": "net.svg",
    "dump": "A.npz",
    "export": "net.onnx",
    "extract_features": "prob_lmdb/data.mdb",
    "get_image_size": "test_name_size.txt",
    "gradcheck": None,
    "info": None,
    "layers": None,
    "parse_log": "train.log.test",
    "plot": "curves.svg",
    "plot_training_log": "loss.png",
    "predict": "result.png",
    "summary": None,
    "test": None,
    "time": None,
    "tools": "caffe/build/tools/caffe",
    "upgrade": "new.prototxt",
    "upgrade_net_proto_binary": "new.caffemodel",
    "upgrade_net_proto_text": "new.prototxt",
    "upgrade_solver_proto_text": "new.prototxt",
    "view": "googlenet.html",
}
MARKS = {"time": pytest.mark.long}
EXAMPLES_NOT_RUN = {
    "completion": "a shell redirects its output, which cli/test_completion.py tests",
    "demo": "trains for minutes, in cli/test_demo.py",
    "device_query": "needs a GPU",
    "plan": "needs libtpu; planning/test_program_size.py plans for TPUs where it is installed",
    "run": "replaces modules of its process; it runs below in another",
    "ssd_detect": "needs a detector, with which cli/test_example_programs.py runs it",
    "train": "takes a thousand iterations, in test_digits.py",
}


def find_help_examples() -> dict[str, str]:
    """The example of each command."""
    return {name: str(parser.epilog).removeprefix("example: ") for name, parser in cli.make_parser().subparsers.items()}


def test_every_help_has_an_example_that_is_run_or_cannot_be() -> None:
    examples = find_help_examples()
    assert sorted(examples) == sorted([*OUTPUTS_OF_EXAMPLES, *EXAMPLES_NOT_RUN])
    for name, example in examples.items():
        assert example.startswith(f"caffejax {name} ")


@pytest.mark.parametrize("name", [pytest.param(n, marks=MARKS.get(n, ())) for n in OUTPUTS_OF_EXAMPLES])
def test_examples_of_help_run(name: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command, output = find_help_examples()[name], OUTPUTS_OF_EXAMPLES[name]
    if name in ("compare", "plot", "plot_training_log"):
        pytest.importorskip("matplotlib")
    if name == "compute_image_mean":
        Path("mean.binaryproto").unlink()
    if name == "convert_imageset":
        shutil.rmtree("train_lmdb")
    if name == "create_label_map":
        Path("labelmap.prototxt").unlink()
    if name == "upgrade_solver_proto_text":
        Path("old.prototxt").write_text('net: "net.prototxt" solver_type: ADAM base_lr: 0.1')
    assert output is None or not Path(output).exists()
    code = cli.main([argument.replace("~", str(folder)) for argument in shlex.split(command)[1:]])
    captured = capsys.readouterr()
    assert code == 0, f"{command}\n{captured.err}"
    if output is None:
        assert len(captured.out + captured.err) > 50, command
    else:
        assert Path(output).stat().st_size, command


def test_the_example_of_a_script_runs(folder: Path) -> None:
    """In a process of its own, in which `caffe` and `cv2.dnn` are caffejax's."""
    command = [sys.executable, "-m", *shlex.split(find_help_examples()["run"])]
    result = subprocess.run(command, capture_output=True, text=True, cwd=folder, check=False)
    assert (result.returncode, result.stdout) == (0, "caffejax.pycaffe ['--images', 'cat.jpg']\n"), result.stderr


def test_arguments_of_other_examples_exist() -> None:
    parser = cli.make_parser()
    for name in EXAMPLES_NOT_RUN:
        parser.parse_args(shlex.split(find_help_examples()[name].partition(" > ")[0])[1:])
