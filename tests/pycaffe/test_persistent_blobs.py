"""Blobs that a Caffe layer fills once, keeps or shares, for every type of BVLC Caffe, and the blobs of test nets."""

from pathlib import Path
from typing import Any

import cv2
import h5py
import numpy as np
import pytest

import caffejax
import caffejax.pycaffe as caffe
from caffejax.cli import main
from caffejax.core.layers import layer_types

from .conftest import Write

REPOSITORY = Path(__file__).parents[2]
M, IMAGE, L = (2, 3), (2, 2, 4, 4), (2,)
DIGITS = REPOSITORY / "configs" / "digits" / "digits_test_lmdb"
ONE_TOP_FILLER = 'data_filler { type: "gaussian" std: 1 }'

# What each type of Caffe does with its tops in a forward pass, by its code: it computes them, reads them from a source,
# keeps what a script wrote (Input; constant DummyData, which is filled at set-up), shares memory with its bottom
# (ShareData) or with its param, or has no tops. Then settings, bottoms and number of tops of a layer.
TYPES: dict[str, tuple[str, str, list[tuple[int, ...]], int]] = {
    "MemoryData": ("reads", "memory_data_param { batch_size: 1 channels: 1 height: 2 width: 2 }", [], 2),
    "AbsVal": ("computes", "", [M], 1),
    "Accuracy": ("computes", "", [M, L], 1),
    "ArgMax": ("computes", "", [M], 1),
    "BNLL": ("computes", "", [M], 1),
    "BatchNorm": ("computes", "", [IMAGE], 1),
    "BatchReindex": ("computes", "", [M, L], 1),
    "Bias": ("computes", "", [M], 1),
    "Clip": ("computes", "clip_param { min: 0 max: 1 }", [M], 1),
    "Concat": ("computes", "", [M, M], 1),
    "ContrastiveLoss": ("computes", "", [M, M, L], 1),
    "Convolution": ("computes", "convolution_param { num_output: 1 kernel_size: 3 }", [IMAGE], 1),
    "Crop": ("computes", "", [IMAGE, (2, 2, 3, 3)], 1),
    "Data": ("reads", f'data_param {{ source: "{DIGITS}" batch_size: 1 backend: LMDB }}', [], 2),
    "Deconvolution": ("computes", "convolution_param { num_output: 1 kernel_size: 3 }", [IMAGE], 1),
    "Dropout": ("computes", "", [M], 1),
    "DummyData": ("keeps", "dummy_data_param { shape { dim: 2 } data_filler { value: 5 } }", [], 1),
    "ELU": ("computes", "", [M], 1),
    "Eltwise": ("computes", "", [M, M], 1),
    "Embed": ("computes", "embed_param { num_output: 2 input_dim: 3 }", [L], 1),
    "EuclideanLoss": ("computes", "", [M, M], 1),
    "Exp": ("computes", "", [M], 1),
    "Flatten": ("shares", "", [IMAGE], 1),
    "HDF5Data": ("reads", 'hdf5_data_param { source: "list.txt" batch_size: 1 }', [], 1),
    "HingeLoss": ("computes", "", [M, L], 1),
    "Im2col": ("computes", "convolution_param { kernel_size: 3 }", [IMAGE], 1),
    "ImageData": ("reads", 'image_data_param { source: "images.txt" batch_size: 1 }', [], 2),
    "InfogainLoss": ("computes", "", [M, L, (1, 1, 3, 3)], 1),
    "InnerProduct": ("computes", "inner_product_param { num_output: 2 }", [M], 1),
    "Input": ("keeps", "input_param { shape { dim: 2 } }", [], 1),
    "LRN": ("computes", "", [IMAGE], 1),
    "LSTM": ("computes", "recurrent_param { num_output: 2 }", [(1, 2, 3), (1, 2)], 1),
    "LSTMUnit": ("computes", "", [(1, 2, 3), (1, 2, 12), (1, 2)], 2),
    "Log": ("computes", "log_param { shift: 2 }", [M], 1),
    "MVN": ("computes", "", [IMAGE], 1),
    "MultinomialLogisticLoss": ("computes", "", [M, L], 1),
    "PReLU": ("computes", "", [IMAGE], 1),
    "Parameter": ("is a param", "parameter_param { shape { dim: 2 } }", [], 1),
    "Pooling": ("computes", "pooling_param { kernel_size: 2 }", [IMAGE], 2),
    "Power": ("computes", "", [M], 1),
    "RNN": ("computes", "recurrent_param { num_output: 2 }", [(1, 2, 3), (1, 2)], 1),
    "ReLU": ("computes", "", [M], 1),
    "Reduction": ("computes", "", [M], 1),
    "Reshape": ("shares", "reshape_param { shape { dim: -1 } }", [M], 1),
    "SPP": ("computes", "spp_param { pyramid_height: 1 }", [IMAGE], 1),
    "Scale": ("computes", "", [M], 1),
    "Sigmoid": ("computes", "", [M], 1),
    "SigmoidCrossEntropyLoss": ("computes", "", [M, M], 1),
    "Silence": ("no tops", "", [M], 0),
    "Slice": ("computes", "slice_param { slice_point: 1 }", [M], 2),
    "Softmax": ("computes", "", [M], 1),
    "SoftmaxWithLoss": ("computes", "", [M, L], 1),
    "Split": ("shares", "", [M], 2),
    "Swish": ("computes", "", [M], 1),
    "TanH": ("computes", "", [M], 1),
    "Threshold": ("computes", "", [M], 1),
    "Tile": ("computes", "tile_param { tiles: 2 }", [M], 1),
    "WindowData": (
        "reads",
        'window_data_param { source: "windows.txt" batch_size: 4 } transform_param { crop_size: 4 }',
        [],
        2,
    ),
    "Python": ("computes", 'python_param { module: "user_twice" layer: "Twice" }', [M], 1),
    "Filter": ("computes", "", [M, L], 1),
    "HDF5Output": ("no tops", 'hdf5_output_param { file_name: "out.h5" }', [M, L], 0),
}
SETTINGS_WITH_OTHER_CLASS = {  # of a type whose class depends on its settings
    "Concat of one bottom": ("Concat", "shares", "", [M], 1),
    "Slice with one top": ("Slice", "shares", "", [M], 1),
    "DummyData, gaussian": (
        "DummyData",
        "computes",
        f"dummy_data_param {{ shape {{ dim: 2 }} {ONE_TOP_FILLER} }}",
        [],
        1,
    ),
    "DummyData without filler": ("DummyData", "keeps", "dummy_data_param { shape { dim: 2 } }", [], 1),
    "DummyData, bilinear": (
        "DummyData",
        "computes",
        'dummy_data_param { shape { dim: 1 dim: 1 dim: 4 dim: 4 } data_filler { type: "bilinear" } }',
        [],
        1,
    ),
}
LAYERS = {name: (name, *case) for name, case in TYPES.items()} | SETTINGS_WITH_OTHER_CLASS

USER_LAYER = """
import caffe
class Twice(caffe.Layer):
    def setup(self, bottom, top): pass
    def reshape(self, bottom, top): top[0].reshape(*bottom[0].shape)
    def forward(self, bottom, top): top[0].data[...] = 2 * bottom[0].data
"""


def write_sources(folder: Path) -> None:
    """Write what the data layers of `LAYERS` read."""
    with h5py.File("data.h5", "w") as file:
        file["HDF5Data 0"] = np.arange(3.0, dtype=np.float32).reshape(3, 1)
    (folder / "list.txt").write_text("data.h5\n")
    cv2.imwrite("a.png", np.full((4, 4, 3), 50, np.uint8))
    (folder / "images.txt").write_text("a.png 1\n")
    (folder / "windows.txt").write_text(f"# 0\n{folder}/a.png\n3\n4\n4\n2\n1 0.9 0 0 3 3\n0 0.1 0 0 2 2\n")
    (folder / "user_twice.py").write_text(USER_LAYER)


def make_net_of_all_types() -> str:
    """Return a net with a layer for each item of `LAYERS`. Bottoms and tops have the layer's name and their number."""
    inputs, layers = "", []
    for name, (kind, _, settings, bottoms, num_tops) in LAYERS.items():
        names = [f"{name} bottom {i}" for i in range(len(bottoms))]
        for blob, shape in zip(names, bottoms, strict=True):
            dims = " ".join(f"dim: {n}" for n in shape)
            inputs += f'layer {{ name: "{blob}" type: "Input" top: "{blob}" input_param {{ shape {{ {dims} }} }} }}\n'
        wiring = " ".join([f'bottom: "{b}"' for b in names] + [f'top: "{name} {i}"' for i in range(num_tops)])
        loss = "loss_weight: 0" if kind.endswith("Loss") or kind == "SoftmaxWithLoss" else ""
        layers.append(f'layer {{ name: "{name}" type: "{kind}" {wiring} {settings} {loss} }}\n')
    return layers[0] + inputs + "".join(layers[1:])


def test_each_type_keeps_or_overwrites_what_a_script_writes_to_its_tops(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Write into the tops of all types after a pass: the next pass keeps or overwrites them, as Caffe's does."""
    assert {name for name, kind in layer_types().items() if "BVLC" in kind.docs.origin} == set(TYPES)
    monkeypatch.syspath_prepend(tmp_path)
    write_sources(tmp_path)
    net = caffe.Net(make_net_of_all_types(), caffe.TRAIN)
    images = np.arange(8, dtype=np.float32).reshape(2, 1, 2, 2)
    net.set_input_arrays(images, np.zeros(2, np.float32))
    for name, blob in net.blobs.items():
        if " bottom " in name and len(blob.shape) > 1:
            blob.data[...] = np.random.default_rng(0).uniform(0.1, 0.9, blob.shape)
    net.blobs["Filter bottom 1"].data[...] = 1
    for name in ("LSTM", "RNN", "LSTMUnit"):
        net.blobs[f"{name} bottom {2 if name == 'LSTMUnit' else 1}"].data[...] = 0  # do not continue a sequence
    net.forward()
    before = {name: blob.data.copy() for name, blob in net.blobs.items()}
    assert (before["DummyData 0"] == 5).all()
    tops = {name: net.top_names[name] for name in LAYERS}
    assert {name for name, names in tops.items() if not names} == {"Silence", "HDF5Output"}
    for name in (top for names in tops.values() for top in names):
        net.blobs[name].data[...] = 123
    net.forward()
    for name, (_, behaviour, *_) in LAYERS.items():
        for top in tops[name]:
            data = net.blobs[top].data
            match behaviour:
                case "keeps" | "is a param":
                    assert (data == 123).all(), top
                case "reads":
                    assert (data != 123).any(), top
                case "computes" | "shares":
                    is_random = name in ("Dropout", "DummyData, gaussian")
                    assert (data != 123).all() if is_random else np.array_equal(data, before[top]), top
    assert (net.params["Parameter"][0].data == 123).all()
    for name, (kind, behaviour, *_) in LAYERS.items():  # what Caffe shares, and caffejax does not
        if behaviour == "shares":
            net.blobs[tops[name][0]].data[...] = 7
            assert (net.blobs[f"{name} bottom 0"].data != 7).all(), name
            assert kind in (REPOSITORY / "docs" / "differences.md").read_text()


MIXED = """
layer { name: "x" type: "DummyData" top: "a" top: "t" top: "b" dummy_data_param { %s
  data_filler { type: "gaussian" std: 1 } data_filler { value: 4 } data_filler { type: "constant" value: 2 } } }
layer { name: "ip" type: "InnerProduct" bottom: "a" top: "ip" inner_product_param { num_output: 1
  weight_filler { type: "constant" value: 1 } } }
layer { name: "sum" type: "Eltwise" bottom: "ip" bottom: "b" top: "sum" }
layer { name: "loss" type: "EuclideanLoss" bottom: "sum" bottom: "t" top: "loss" }
""" % ("shape { dim: 2 dim: 1 } " * 3)
SOLVER = """
net: "net.prototxt" lr_policy: "fixed" max_iter: 3 snapshot_prefix: "s" snapshot_after_train: false
random_seed: 3
"""
TESTS = "test_iter: 2 test_interval: 1"


def make_solver(write: Write, net: str, settings: str = "", rate: float = 0.1) -> Any:
    write("net.prototxt", net)
    return caffe.SGDSolver(write("solver.prototxt", f"{SOLVER} base_lr: {rate} {settings}"))


def test_mixed_fillers_of_one_layer(write: Write) -> None:
    """Only tops with other fillers than constant are filled in each pass, in nets and in both nets of a solver."""
    net = caffe.Net(MIXED, caffe.TEST)
    assert (net.blobs["t"].data == 4).all()
    assert (net.blobs["a"].data == 0).all()  # not filled before the first pass
    net.blobs["t"].data[...] = net.blobs["a"].data[...] = 50
    net.forward()
    first = net.blobs["a"].data.copy()
    assert (np.abs(first) < 10).all()
    net.forward(start="ip")
    np.testing.assert_array_equal(net.blobs["a"].data, first)
    net.forward()
    assert (net.blobs["a"].data != first).all()
    assert (net.blobs["t"].data == 50).all()
    np.testing.assert_allclose(net.blobs["loss"].data, ((net.blobs["a"].data + 2 - 50) ** 2).sum() / 4, rtol=1e-5)
    solver = make_solver(write, MIXED, TESTS)
    for each, value in ((solver.net, 6), (solver.test_nets[0], 8)):
        each.blobs["t"].data[...] = each.blobs["a"].data[...] = value
    solver.step(2)
    for each, value in ((solver.net, 6), (solver.test_nets[0], 8)):
        assert (each.blobs["t"].data == value).all()
        assert (np.abs(each.blobs["a"].data) < 5).all()


def test_training_with_random_dummy_data_equals_the_command(write: Write) -> None:
    """The values of the fillers are those of `caffejax.Solver`, where tops are filled in the compiled step."""
    solver = make_solver(write, MIXED)
    seeds = {"seed": solver._trainer.seed}
    other = caffejax.Solver("solver.prototxt", **seeds)
    solver.step(2)
    other.step(2)
    other.close()
    np.testing.assert_allclose(solver.net.params["ip"][0].data, other.variables.params["ip"]["weight"], rtol=1e-5)


PLACEHOLDER = """
layer { name: "x" type: "DummyData" top: "a" top: "t" dummy_data_param { shape { dim: 1 dim: 1 } } }
layer { name: "ip" type: "InnerProduct" bottom: "a" top: "ip" inner_product_param { num_output: 1 } }
layer { name: "loss" type: "EuclideanLoss" bottom: "ip" bottom: "t" top: "loss" }
"""


def test_dummy_data_as_a_placeholder_for_batches(write: Write) -> None:
    """Values by Caffe: weight 0.1 * 2 * 3 after the first step; the bias stays 0.1 * 3."""
    solver = make_solver(write, PLACEHOLDER)
    solver.net.blobs["a"].data[...], solver.net.blobs["t"].data[...] = 2, 3
    solver.step(1)
    assert (solver.net.blobs["a"].data.item(), solver.net.blobs["loss"].data.item()) == (2, 4.5)
    np.testing.assert_allclose(solver.net.params["ip"][0].data, [[0.6]], rtol=1e-6)
    solver.net.blobs["a"].reshape(3, 1)
    solver.net.blobs["t"].reshape(3, 1)
    solver.net.blobs["a"].data[...] = solver.net.blobs["t"].data[...] = 1
    solver.step(1)
    assert solver.net.blobs["ip"].shape == (3, 1)
    np.testing.assert_allclose(solver.net.blobs["ip"].data, 0.9, rtol=1e-6)


def test_a_layer_in_place_on_dummy_data_reads_what_it_wrote() -> None:
    """The top is filled once, so that each pass doubles it, as in Caffe."""
    double = 'layer { name: "p" type: "Power" bottom: "a" top: "a" power_param { scale: 2 } }'
    net = caffe.Net(PLACEHOLDER.splitlines()[1].replace('top: "t"', "") + double, caffe.TEST)
    net.blobs["a"].data[...] = 1
    for i in range(1, 4):
        net.forward()
        assert net.blobs["a"].data == 2**i


MEMORY = """
layer { name: "in" type: "MemoryData" top: "x" top: "t"
  memory_data_param { batch_size: 1 channels: 1 height: 1 width: 1 } }
layer { name: "ip" type: "InnerProduct" bottom: "x" top: "ip" inner_product_param { num_output: 1 } }
layer { name: "loss" type: "EuclideanLoss" bottom: "ip" bottom: "t" top: "loss" }
"""


def test_memory_data_without_arrays_is_an_error_wherever_it_is_read(
    write: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    solver = make_solver(write, MEMORY, TESTS)
    expected = r"net.prototxt: layer 'in' \(MemoryData\): has no data; call set_input_arrays"
    calls = [lambda: solver.step(1), solver.solve, solver.net.forward, lambda: solver.net._forward(0, 0)]
    images, labels = np.full((2, 1, 1, 1), 3, np.float32), np.zeros(2, np.float32)
    for call in calls:  # the tests come first
        with pytest.raises(caffejax.GraphError, match=expected):
            call()
    solver.test_nets[0].set_input_arrays(images, labels)
    for call in calls:
        with pytest.raises(caffejax.GraphError, match=expected):
            call()
    assert solver.iter == 0
    solver.net.set_input_arrays(images, labels)
    solver.step(1)
    assert (solver.net.blobs["x"].data == 3).all()
    assert (solver.test_nets[0].blobs["x"].data == 3).all()
    assert main(["train", "--solver=solver.prototxt"]) == 1
    message = capsys.readouterr().err
    for net in ("the train net", "test net #0"):
        assert f"{net} has no data for layer 'in' (MemoryData) with 'x' (1x1x1x1), 't' (1)" in message


TEST_NET = """
layer { name: "data" type: "HDF5Data" top: "x" hdf5_data_param { source: "list.txt" batch_size: 2 } }
layer { name: "double" type: "Power" bottom: "x" top: "y" power_param { scale: 2 } }
layer { name: "ip" type: "InnerProduct" bottom: "y" top: "ip" inner_product_param { num_output: 1 } }
layer { name: "loss" type: "Reduction" bottom: "ip" top: "loss" loss_weight: 1 }
"""


def test_blobs_of_test_nets_after_the_tests_of_a_solver(write: Write, tmp_path: Path) -> None:
    """They are the last batch of the last test, which the next forward pass continues; params are the train net's."""
    with h5py.File("data.h5", "w") as file:
        file["x"] = np.arange(10.0, dtype=np.float32).reshape(10, 1)
    (tmp_path / "list.txt").write_text("data.h5\n")
    solver = make_solver(write, TEST_NET, TESTS)
    net = solver.test_nets[0]
    passes: list[int] = []
    net.before_forward(lambda i: passes.append(i))
    score = net.blobs["ip"].data  # a view, which passes update
    solver.step(1)
    assert passes == [0, 1, 2, 3] * 2
    np.testing.assert_array_equal(net.blobs["x"].data, [[2], [3]])
    np.testing.assert_array_equal(net.blobs["y"].data, [[4], [6]])
    assert (score == 0).all()  # the test came before the first update
    weight = solver.net.params["ip"][0].data.copy()
    assert weight.all()
    solver.step(1)
    np.testing.assert_array_equal(net.blobs["x"].data, [[6], [7]])
    np.testing.assert_allclose(score, [[12], [14]] * weight + score[0] - 12 * weight, rtol=1e-5)
    net.forward()
    np.testing.assert_array_equal(net.blobs["x"].data, [[8], [9]])
    solver.step(1)
    np.testing.assert_array_equal(net.blobs["x"].data, [[2], [3]])


RUNNING_STATISTICS = """
layer { name: "x" type: "DummyData" top: "a" dummy_data_param { shape { dim: 4 dim: 1 }
  data_filler { type: "constant" value: 1 } } }
layer { name: "bn" type: "BatchNorm" bottom: "a" top: "y" batch_norm_param { use_global_stats: false } }
layer { name: "l" type: "Reduction" bottom: "y" top: "l" loss_weight: 1 }
"""


def test_tests_of_a_solver_keep_running_statistics_and_passes_by_hand_change_them(write: Write) -> None:
    solver = make_solver(write, RUNNING_STATISTICS, TESTS)
    factor = solver.net.params["bn"][2]
    solver.step(2)
    np.testing.assert_allclose(factor.data, [1.999], rtol=1e-6)  # two training passes
    solver.test_nets[0].forward()
    np.testing.assert_allclose(factor.data, [1 + 0.999 * 1.999], rtol=1e-6)
    np.testing.assert_array_equal(solver.test_nets[0].params["bn"][2].data, factor.data)
    assert (solver.test_nets[0].blobs["y"].data == 0).all()


def test_reshaped_inputs_of_a_test_net(write: Write) -> None:
    """A script may reshape the Input layer of a test net; the next test runs, and shows, the new shapes."""
    input_layer = 'layer { name: "in" type: "Input" top: "x" input_param { shape { dim: 2 dim: 1 } } }\n'
    solver = make_solver(write, input_layer + "".join(TEST_NET.splitlines(keepends=True)[2:]), TESTS)
    net = solver.test_nets[0]
    net.blobs["x"].reshape(5, 1)
    net.blobs["x"].data[...] = 4
    solver.net.blobs["x"].data[...] = 1
    solver.step(1)
    assert net.blobs["y"].shape == (5, 1)
    assert (net.blobs["y"].data == 8).all()


def test_recurrent_state_of_a_test_net_is_saved_and_restored(write: Write) -> None:
    """A test continues the sequence of the previous test: also of one before the snapshot."""
    layers = """
    layer { name: "x" type: "DummyData" top: "x" top: "cont" dummy_data_param {
      shape { dim: 1 dim: 1 dim: 1 } shape { dim: 1 dim: 1 } data_filler { value: 1 } data_filler { value: 1 } } }
    layer { name: "rnn" type: "RNN" bottom: "x" bottom: "cont" top: "y" recurrent_param { num_output: 1
      weight_filler { type: "constant" value: 0.5 } } }
    layer { name: "l" type: "Reduction" bottom: "y" top: "l" }
    """
    values = []
    solver = make_solver(write, layers, TESTS.replace("test_iter: 2", "test_iter: 1"))
    for i in range(4):
        solver.step(1)
        values.append(solver.test_nets[0].blobs["y"].data.item())
        if i == 1:
            solver.snapshot()
    assert len(set(values)) == 4
    resumed = caffe.SGDSolver("solver.prototxt")
    resumed.restore("s_iter_2.solverstate")
    resumed.step(1)
    np.testing.assert_allclose(resumed.test_nets[0].blobs["y"].data, values[2], rtol=1e-6)


PARAMETER = """
layer { name: "P" type: "Parameter" top: "p" parameter_param { shape { dim: 2 } } }
layer { name: "l" type: "Reduction" bottom: "p" top: "l" reduction_param { operation: SUMSQ } loss_weight: 1 }
"""


@pytest.mark.parametrize("readers", [1, 2])
def test_the_top_of_a_parameter_layer_is_its_param(write: Write, readers: int) -> None:
    """Also through the Split of several readers. Values by Caffe: the gradient of a reader is 2 p."""
    second = 'layer { name: "m" type: "Reduction" bottom: "p" top: "m" }' if readers == 2 else ""
    solver = make_solver(write, PARAMETER + second, TESTS, rate=0.25)
    top, param = solver.net.blobs["p"], solver.net.params["P"][0]
    solver.net.forward()
    top.data[...] = 8
    assert (param.data == 8).all()
    solver.step(1)
    assert (param.data == 4).all()
    assert (top.data == 4).all()
    assert float(solver.net.blobs["l"].data) == 128
    param.data[...] = 2
    assert (top.data == 2).all()
    solver.net.forward(start="l")
    assert float(solver.net.blobs["l"].data) == 8
    solver.test_nets[0].forward()
    assert float(solver.test_nets[0].blobs["l"].data) == 8
    assert (solver.test_nets[0].blobs["p"].data == 2).all()
    for _ in range(2):  # the diff of the top is the diff of the param, so that a pass overwrites it
        solver.net.forward()
        solver.net.backward()
    assert (param.diff == 4).all()


def test_a_parameter_top_that_a_layer_overwrites_is_not_the_param() -> None:
    parameter, loss = PARAMETER.strip().splitlines()
    shift = 'layer { name: "r" type: "Power" bottom: "p" top: "p" power_param { shift: 1 } }'
    net = caffe.Net(parameter + shift + loss, caffe.TEST)
    net.params["P"][0].data[...] = 2
    for _ in range(2):
        net.forward()
        assert (net.blobs["p"].data == 3).all()
    assert (net.params["P"][0].data == 2).all()


DETECTIONS = """
layer { name: "conf" type: "HDF5Data" top: "conf" hdf5_data_param { source: "list.txt" batch_size: 1 } }
layer { name: "boxes" type: "DummyData" top: "loc" top: "prior" dummy_data_param {
  shape { dim: 1 dim: 12 } shape { dim: 1 dim: 2 dim: 12 }
  data_filler { type: "constant" value: 0 } data_filler { type: "uniform" min: 0.1 max: 0.9 } } }
layer { name: "det" type: "DetectionOutput" bottom: "loc" bottom: "conf" bottom: "prior" top: "det"
  detection_output_param { num_classes: 2 nms_param { nms_threshold: 1 } confidence_threshold: 0.5 keep_top_k: 3 } }
"""


def test_detections_of_varying_numbers_have_the_mean_of_the_command(write: Write, tmp_path: Path) -> None:
    """A blob has the valid rows of the last batch; the scores are those of `caffejax.Solver`, of padded rows."""
    with h5py.File("data.h5", "w") as file:
        file["conf"] = np.array([[0.1, 0.9] * 3, [0.9, 0.1, 0.1, 0.9, 0.9, 0.1]], np.float32)
    (tmp_path / "list.txt").write_text("data.h5\n")
    net = DETECTIONS + PLACEHOLDER.replace('layer { name: "x"', 'layer { name: "x2"')
    solver = make_solver(write, net, TESTS)
    other = caffejax.Solver("solver.prototxt", seed=solver._trainer.seed)
    for each in (solver._trainer, other):
        each.test()
    assert solver.test_nets[0].blobs["det"].shape == (1, 1, 1, 7)
    np.testing.assert_allclose(solver._trainer.tests.scores["det"], other.tests.scores["det"], rtol=1e-5)
    other.close()


HOLDERS = """
import caffe
class Holder(caffe.Layer):
    def setup(self, bottom, top):
        top[0].reshape(3)
        top[0].data[...] = 7
    def reshape(self, bottom, top): pass
    def forward(self, bottom, top): pass
    def backward(self, top, propagate_down, bottom): pass
class First(Holder):
    def forward(self, bottom, top): top[0].data[0] = len(bottom) and bottom[0].data[0]
"""


def test_python_layers_that_leave_their_tops_as_they_are(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a Python layer does not write keeps what `setup` or a script wrote: the blob is the net's, as in Caffe."""
    (tmp_path / "holders.py").write_text(HOLDERS)
    monkeypatch.syspath_prepend(tmp_path)
    layer = 'layer {{ name: "{1}" type: "Python" {2} top: "{1}" python_param {{ module: "holders" layer: "{0}" }} }}\n'
    text = layer.format("Holder", "d", "") + layer.format("First", "e", "") + layer.format("First", "f", 'bottom: "d"')
    text += 'layer { name: "s" type: "Eltwise" bottom: "d" bottom: "f" top: "s" }\n'
    text += 'layer { name: "l" type: "Reduction" bottom: "s" top: "l" loss_weight: 1 }\n'
    solver = make_solver(write, text, TESTS)
    net = caffe.Net(text, caffe.TEST)
    for nets, run in (([net], net.forward), ([solver.net, *solver.test_nets], lambda: solver.step(1))):
        expected = [[7, 7, 7]] * 3, [[7, 7, 7], [0, 7, 7], [7, 7, 7]], [[1, 2, 3], [0, 7, 7], [1, 5, 5]]
        for i in range(4):
            for each in nets:
                assert [each.blobs[name].data.tolist() for name in "def"] == expected[min(i, 2)]
                if i == 1:
                    each.blobs["d"].data[...], each.blobs["f"].data[...] = [1, 2, 3], 5
            run()
        assert all(each.blobs["s"].data.tolist() == [2, 7, 8] for each in nets)
