"""Declared differences in the blobs of Caffe's Python interface and in the params that nets and passes share."""

from __future__ import annotations

import contextlib
import io
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from difference import Comparison, Difference

import caffejax
import caffejax.pycaffe as caffe

SOLVER = """net: "net.prototxt" lr_policy: "fixed" max_iter: 9 snapshot_prefix: "s" snapshot_after_train: false
solver_mode: CPU random_seed: 1 """


@contextlib.contextmanager
def _in_folder(net: str, settings: str) -> Iterator[None]:
    """Write net.prototxt and solver.prototxt to a temporary folder, and make it the working directory."""
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder), contextlib.redirect_stderr(io.StringIO()):
        Path("net.prototxt").write_text(net)
        Path("solver.prototxt").write_text(SOLVER + settings)
        yield


def _make_solver(net: str, settings: str) -> Any:
    with _in_folder(net, settings):
        return caffe.SGDSolver("solver.prototxt")


def _make_net(net: str) -> Any:
    with contextlib.redirect_stderr(io.StringIO()):
        return caffe.Net(net, caffe.TRAIN)


def _compare_shared_tops(text: str) -> list[Comparison]:
    net = _make_net(text)
    net.forward()
    comparisons = []
    for layer in ("reshape", "flatten", "split", "concat", "slice"):
        top = net.top_names[layer][0]
        bottom = net.bottom_names[layer][0]
        net.blobs[top].data[...] = 8
        comparisons.append(
            Comparison(f"{bottom} after `{top}.data[...] = 8`", 8 * np.ones(2), net.blobs[bottom].data.copy())
        )
    return comparisons


def _compare_memory_data(text: str) -> list[Comparison]:
    net = _make_net(text)
    images = np.ones((1, 1, 1, 1), np.float32)
    net.set_input_arrays(images, np.zeros(1, np.float32))
    net.forward()
    net.blobs["x"].data[...] = 8
    return [Comparison("the array after `x.data[...] = 8`", np.array([8.0]), images.ravel())]


def _compare_parameter_diff(text: str) -> list[Comparison]:
    solver = _make_solver(text, "base_lr: 0.25 iter_size: 2")
    solver.net.params["P"][0].data[...] = 8
    solver.step(1)
    # the gradient of a pass is 2 p = 16: Caffe has 16 / 2, here it is (16 + 16) / 2
    return [
        Comparison(
            "p, which was 8, after a step with iter_size: 2", 8 - 0.25 * 8 * np.ones(1), solver.net.params["P"][0].data
        )
    ]


def _compare_dummy_data_in_place(text: str) -> list[Comparison]:
    with _in_folder(text, "base_lr: 1"):
        solver = caffejax.Solver("solver.prototxt")
    losses = []
    for _ in range(3):
        solver.step(1)
        losses.append(solver.smoothed_loss)
    solver.close()
    return [Comparison("losses of `caffejax train`", np.array([2.0, 4, 8]), np.array(losses))]


def _compare_running_statistics(text: str) -> list[Comparison]:
    solver = _make_solver(text, "base_lr: 0.1 test_iter: 10 test_interval: 1")
    solver.step(2)
    caffes = np.array([sum(0.999**k for k in range(22))])  # of 2 passes of training and 20 of tests
    return [Comparison("factor of the statistics after two steps", caffes, solver.net.params["bn"][2].data)]


def _compare_python_layer(text: str) -> list[Comparison]:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "assigning_layer.py").write_text(
            "class Assign:\n"
            "    def setup(self, bottom, top): self.blobs.add_blob(1)\n"
            "    def reshape(self, bottom, top): top[0].reshape(1)\n"
            "    def forward(self, bottom, top): top[0].data[...] = self.blobs[0].data\n"
            "    def backward(self, top, propagate_down, bottom): self.blobs[0].diff[...] = top[0].diff\n"
        )
        sys.path.insert(0, folder)
        solver = _make_solver(text, "base_lr: 1 iter_size: 2")
        sys.path.remove(folder)
    solver.step(1)
    return [
        Comparison(
            "the param, which was 0, after a step with iter_size: 2", -0.5 * np.ones(1), solver.net.params["py"][0].data
        )
    ]


def _compare_diff_of_x(text: str) -> list[Comparison]:
    net = _make_net(text)
    net.forward()
    net.backward()
    return [Comparison("diff of x", np.zeros(2), net.blobs["x"].diff)]


def _compare_unneeded_diff(text: str) -> list[Comparison]:
    results = []
    for prefix in ("force_backward: true\n", ""):  # with force_backward the diff is Caffe's
        net = _make_net(prefix + text)
        net.blobs["x"].data[...] = np.array([[1.0], [2], [4]])
        net.forward()
        net.backward()
        results.append(np.array(net.blobs["x"].diff).ravel())
    return [Comparison("diff of x = [1, 2, 4]", *results)]


def _compare_test_outputs(text: str, caffes: dict[str, float]) -> list[Comparison]:
    with _in_folder(text, "base_lr: 0.5 test_iter: 1 test_interval: 1"):
        solver = caffejax.Solver("solver.prototxt")
    solver.step(1)
    outputs = solver.test()[0].outputs
    solver.close()
    names = sorted(caffes)
    return [
        Comparison(
            f"test outputs {', '.join(names)} after a step",
            np.array([caffes[name] for name in names]),
            np.array([outputs[name].item() for name in names]),
        )
    ]


def _compare_padding(text: str) -> list[Comparison]:
    net = _make_net(text)
    row = net.forward(x=np.array([-1]))["y"].ravel()
    return [Comparison("row of the index -1", "the numbers before the weight in memory", row)]


_DATA = """layer { name: "x" type: "DummyData" top: "a"
  dummy_data_param { shape { dim: 1 dim: 1 } data_filler { value: 1 } } }
"""
_PARAMETER = """layer { name: "P" type: "Parameter" top: "p" parameter_param { shape { dim: 1 } } }
layer { name: "l" type: "Reduction" bottom: "p" top: "l" reduction_param { operation: SUMSQ } loss_weight: 1 }"""


def _format_product(name: str, top: str, value: int, settings: str) -> str:
    return (
        f'layer {{ name: "{name}" type: "InnerProduct" bottom: "a" top: "{top}" {settings}\n'
        f"  inner_product_param {{ num_output: 1 bias_term: false weight_filler {{ value: {value} }} }} }}"
    )


DIFFERENCES = [
    Difference(
        "Tops that share memory with their bottom",
        "In Caffe the tops of Reshape, Flatten and Split, of Concat with one bottom and of Slice with one top are the "
        "memory of their bottom: what a script writes to one is in the other. Here a script that writes to the top "
        "leaves the bottom as it is; the layers after the top read what was written. Splits that Caffe inserts share "
        "memory here, too, and so do Parameter layers with their params.",
        "reshape_layer.cpp, flatten_layer.cpp, split_layer.cpp, concat_layer.cpp, slice_layer.cpp: ShareData",
        """layer { name: "x" type: "Input" top: "a" top: "b" top: "c" top: "d" top: "e"
  input_param { shape { dim: 2 } } }
layer { name: "reshape" type: "Reshape" bottom: "a" top: "reshaped" reshape_param { shape { dim: 2 dim: 1 } } }
layer { name: "flatten" type: "Flatten" bottom: "b" top: "flat" flatten_param { axis: 0 } }
layer { name: "split" type: "Split" bottom: "c" top: "copy" }
layer { name: "concat" type: "Concat" bottom: "d" top: "joined" concat_param { axis: 0 } }
layer { name: "slice" type: "Slice" bottom: "e" top: "sliced" slice_param { axis: 0 } }""",
        _compare_shared_tops,
    ),
    Difference(
        "MemoryData: the arrays of a script",
        "Caffe's tops are parts of the arrays themselves, so that what a script or a layer in place writes to a top is "
        "read again in the next round. Here the tops are copies.",
        "memory_data_layer.cpp, Forward_cpu: top[0]->set_cpu_data(data_ + pos_ * size_)",
        """layer { name: "in" type: "MemoryData" top: "x" top: "t"
  memory_data_param { batch_size: 1 channels: 1 height: 1 width: 1 } }""",
        _compare_memory_data,
    ),
    Difference(
        "DummyData and a layer in place",
        "Caffe fills constant tops once, so that a layer in place changes them again in each pass. So does Caffe's "
        "Python interface here; `caffejax train` and `caffejax.Solver` fill the tops in each pass.",
        "dummy_data_layer.cpp, LayerSetUp: refill_",
        _DATA
        + """layer { name: "double" type: "Power" bottom: "a" top: "a" power_param { scale: 2 } }
layer { name: "l" type: "Reduction" bottom: "a" top: "l" loss_weight: 1 }""",
        _compare_dummy_data_in_place,
    ),
    Difference(
        "Parameter: the diff of its top",
        "In Caffe it is the memory of the param's diff, so that of several passes, as with iter_size, the last one "
        "counts. Here a solver adds the passes up, and the top has a diff of its own. In passes by hand the last one "
        "counts, as in Caffe. What a script writes to the top before the first pass is in the param at once.",
        "parameter_layer.hpp, Forward_cpu: top[0]->ShareDiff(*(this->blobs_[0])); Backward_cpu does nothing",
        _PARAMETER,
        _compare_parameter_diff,
    ),
    Difference(
        "Python layers that assign the diff of their param",
        "With iter_size, what the last pass assigned is all that is left in Caffe. Here a solver adds the passes up. "
        "In passes by hand an assignment replaces the diff, and `+=` adds to it, as in Caffe.",
        "net.cpp, Backward: the layer writes to its own blobs; sgd_solver.cpp, Normalize",
        """layer { name: "x" type: "Input" top: "x" input_param { shape { dim: 1 } } }
layer { name: "py" type: "Python" bottom: "x" top: "y" loss_weight: 1
  python_param { module: "assigning_layer" layer: "Assign" } }""",
        _compare_python_layer,
    ),
    Difference(
        "BatchNorm: running statistics and a solver's tests",
        "With use_global_stats: false in the test net, too, Caffe's tests change the running statistics, so that test "
        "data are in the snapshots. Here a solver's tests leave them as they are; passes by hand through the test net "
        "change them, as in Caffe.",
        "batch_norm_layer.cpp, Forward_cpu: blobs_ change unless use_global_stats_; both nets share them",
        """layer { name: "x" type: "DummyData" top: "a"
  dummy_data_param { shape { dim: 4 dim: 1 } data_filler { value: 1 } } }
layer { name: "bn" type: "BatchNorm" bottom: "a" top: "y" batch_norm_param { use_global_stats: false } }
layer { name: "l" type: "Reduction" bottom: "y" top: "l" loss_weight: 1 }""",
        _compare_running_statistics,
    ),
    Difference(
        "A layer of the test net that shares a trained param",
        "If the train net lacks the layer, Caffe tests it with the initial value for ever. Here it uses the trained "
        "param, which other layers of the test net share with it, whatever their order is.",
        "net.cpp, ShareTrainedLayersWith: the blobs of each layer of the train net by name",
        _DATA
        + _format_product("q", "q", 9, 'param { name: "w" } include { phase: TEST }')
        + "\n"
        + _format_product("k", "k", 1, 'param { name: "w" } loss_weight: 1'),
        lambda text: _compare_test_outputs(text, {"k": 0.5, "q": 9}),
    ),
    Difference(
        "Tests of two layers of one name",
        "Caffe gives the first of them in the test net the params of the last in the train net, and leaves the others "
        "at their initial values. Here each has its own, by its tops, else by its position. Weight files are by name, "
        "as in Caffe; a warning says so when the net is made.",
        "net.cpp, ShareTrainedLayersWith: the first layer of the name",
        _DATA
        + _format_product("fc", "f1", 1, "loss_weight: 1")
        + "\n"
        + _format_product("fc", "f2", 5, "loss_weight: 1"),
        lambda text: _compare_test_outputs(text, {"f1": 4.5, "f2": 5}),
    ),
    Difference(
        "Reshape and then Flatten: gradient",
        "Caffe's Flatten makes the diff of its bottom another memory than the one that Reshape shares with its bottom, "
        "so that earlier layers get the diff 0. Here they get the gradient.",
        "flatten_layer.cpp, Backward_cpu: bottom[0]->ShareDiff(*top[0]); reported as issue 6769 of BVLC/caffe",
        """force_backward: true
layer { name: "x" type: "Input" top: "x" input_param { shape { dim: 2 } } }
layer { name: "reshape" type: "Reshape" bottom: "x" top: "r" reshape_param { shape { dim: 1 dim: 2 } } }
layer { name: "flatten" type: "Flatten" bottom: "r" top: "f" }
layer { name: "l" type: "Reduction" bottom: "f" top: "l" loss_weight: 1 }""",
        _compare_diff_of_x,
    ),
    Difference(
        "Diffs that no param needs",
        "A layer whose params need a gradient has Caffe run its Backward, and some layers then write the diff of their "
        "bottom unasked, as BatchNorm does. Here it stays as it was: it is computed if a param before it, "
        "propagate_down or force_backward asks for it.",
        "batch_norm_layer.cpp, Backward_cpu: propagate_down is not read",
        """layer { name: "x" type: "Input" top: "x" input_param { shape { dim: 3 dim: 1 } } }
layer { name: "bn" type: "BatchNorm" bottom: "x" top: "y" }
layer { name: "square" type: "Power" bottom: "y" top: "s" power_param { power: 3 } }
layer { name: "l" type: "Reduction" bottom: "s" top: "l" loss_weight: 1 }""",
        _compare_unneeded_diff,
    ),
    Difference(
        "Embed: the index -1",
        "LRCN's data sets pad sentences with -1, for which Caffe reads what is before the weight, and writes there in "
        "the backward pass. Here it gives a row of zeros and no gradient, also with a bias. Other indices out of range "
        "are errors.",
        "embed_layer.cpp, Forward_cpu: weight + index * N_; the DCHECK before it is left out of releases",
        """layer { name: "x" type: "Input" top: "x" input_param { shape { dim: 1 } } }
layer { name: "embed" type: "Embed" bottom: "x" top: "y"
  embed_param { num_output: 2 input_dim: 3 bias_term: false weight_filler { value: 5 } } }""",
        _compare_padding,
    ),
]
