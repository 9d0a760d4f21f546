"""Declared differences outside of layers: random numbers, data and solvers."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import h5py
import jax
import numpy as np
from difference import Comparison, Difference
from google.protobuf import text_format

import caffejax.pycaffe as caffe
from caffejax.base.errors import CaffejaxError
from caffejax.core.data.loader import Loader
from caffejax.core.program.net import Net
from caffejax.core.schema import caffe_pb2
from caffejax.core.solver import Solver
from caffejax.core.solver.lr_schedules import Plateau
from caffejax.core.solver.output_checks import check_snapshot_files


def _compare_dropout_masks(net: str) -> list[Comparison]:
    x = {"x": np.ones((1, 1000), np.float32)}
    added_layer = 'layer { name: "more" type: "Dropout" bottom: "x" top: "z" }\n'
    nets = [Net(net, "TRAIN"), Net(net.replace('layer { name: "drop"', added_layer + 'layer { name: "drop"'), "TRAIN")]
    tops = [np.asarray(n.apply({}, {}, x, key=jax.random.key(0), blobs=("y",))[0]["y"]) for n in nets]
    comparison = "the same" if np.array_equal(*tops) else "another"
    return [Comparison("mask of a layer, after another random layer has come into the net", "another", comparison)]


def _compare_list_without_label(net: str) -> list[Comparison]:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "list.txt").write_text("a.png\n")
        result = _get_error_message(lambda: Net(net.replace("list.txt", f"{folder}/list.txt"), "TRAIN")).replace(
            f"{folder}/", ""
        )
    return [Comparison("a list with the line `a.png`", "label 0", f"error: {result}")]


def _compare_resumed_data(net: str) -> list[Comparison]:
    """Show the first batch after two steps of a solver that was stopped and resumed."""
    with tempfile.TemporaryDirectory() as folder:
        with h5py.File(f"{folder}/data.h5", "w") as file:
            file["x"] = np.arange(10.0).reshape(10, 1)
        Path(f"{folder}/list.txt").write_text(f"{folder}/data.h5\n")
        graph = Net(net.replace("list.txt", f"{folder}/list.txt"), "TRAIN").graph
        first_loader, resumed_loader = Loader(graph), Loader(graph)
        for _ in range(2):
            next(first_loader)
        resumed_loader.set_state(first_loader.get_state())
        row = np.asarray(next(resumed_loader)["x"])
        first_loader.close()
        resumed_loader.close()
    return [Comparison("row that the third step reads, of a run that was stopped after two", np.zeros(1), row.ravel())]


def _compare_overflow(net: str) -> list[Comparison]:
    text = f"net_param {{ {net} }} base_lr: 1 lr_policy: 'fixed' max_iter: 3 random_seed: 1"
    solver = Solver(text)
    result = _get_error_message(solver.solve)
    solver.close()
    return [Comparison("training with a loss that overflows", "continues, and snapshots", f"error: {result}")]


def _compare_refused_solver(text: str) -> list[Comparison]:
    layer = 'layer { name: "x" type: "DummyData" top: "x" loss_weight: 1 dummy_data_param { shape { dim: 1 } } }'
    result = _get_error_message(lambda: Solver(f"net_param {{ {layer} }} {text}")).split(": ")[0]
    return [Comparison("such a solver", "loss nan, then params nan", f"error: {result}")]


_CONSTANT_LOSS = """layer { name: "x" type: "DummyData" top: "x" dummy_data_param { shape { dim: 1 dim: 1 }
  data_filler { value: 1 } } }
layer { name: "ip" type: "InnerProduct" bottom: "x" top: "ip"
  inner_product_param { num_output: 1 weight_filler { type: "constant" value: 1 } } loss_weight: 1 }"""


def _compare_other_rule(net: str) -> list[Comparison]:
    with tempfile.TemporaryDirectory() as folder:
        text = f"net_param {{ {net} }} base_lr: -1 lr_policy: 'fixed' snapshot_prefix: '{folder}/s' type: "
        writer, reader = Solver(text + "'SGD'"), Solver(text + "'RMSProp'")
        writer.step(1)
        writer.snapshot()
        result = _get_error_message(lambda: reader.restore(f"{folder}/s_iter_1.solverstate"))
        for solver in (writer, reader):
            solver.close()
    message = result.partition("solverstate: ")[2].partition(";")[0]
    return [Comparison("a state of SGD, restored by RMSProp", "taken", f"error: {message}")]


def _compare_two_runs(net: str) -> list[Comparison]:
    with tempfile.TemporaryDirectory() as folder:
        for iterations in 3, 2:
            solver = Solver(f"net_param {{ {net} }} base_lr: 1 lr_policy: 'fixed' snapshot_prefix: '{folder}/s'")
            solver.step(iterations)
            solver.snapshot()
            solver.close()
        names = ", ".join(sorted(p.name for p in Path(folder).glob("*.solverstate")))
    what = "states beside each other after a run of three iterations and then one of two"
    return [Comparison(what, "s_iter_2.solverstate, s_iter_3.solverstate", names)]


def _compare_large_snapshot(net: str) -> list[Comparison]:
    result = _get_error_message(lambda: check_snapshot_files(caffe_pb2.SolverParameter(type="SGD"), Net(net).graph))
    message = result.splitlines()[0].partition(";")[0]
    return [Comparison("training with a .caffemodel of 2 GiB", "stops at its first snapshot", f"error: {message}")]


def _compare_replaced_blob(net: str) -> list[Comparison]:
    with tempfile.TemporaryDirectory() as folder:
        solver_file = Path(folder) / "solver.prototxt"
        solver_file.write_text(f"net_param {{ {net} }} base_lr: 1 lr_policy: 'fixed'")
        solver = caffe.SGDSolver(str(solver_file))
        blob = solver.net.params["ip"][0] = caffe.Blob(1, 2)
        solver.step(1)
    return [Comparison("the values of the new blob after one step", np.zeros((1, 2), np.float32), blob.data)]


def _compare_plateau_rates(text: str) -> list[Comparison]:
    param = text_format.Parse(text, caffe_pb2.SolverParameter())
    losses, caffejax_plateau, ssd_plateau = [3.0, 2.0, 2.0, 2.0, 2.0, 2.0], Plateau(param), Plateau(param)
    rates = []
    for i, loss in enumerate(losses):
        caffejax_plateau.record_loss(i, losses[max(i - 1, 0)])
        ssd_plateau.record_loss(i, loss)  # the same rule, with the loss that the fork looks at
        rates.append((ssd_plateau(i), caffejax_plateau(i)))
    return [Comparison(f"rates of the iterations with the losses {losses}", *np.array(rates).T)]


def _get_error_message(call: Any) -> str:
    """The error's first sentence."""
    try:
        call()
    except CaffejaxError as error:
        return str(error).split(". ")[0].split("; ")[0]
    return "none"


DIFFERENCES = [
    Difference(
        "Random numbers",
        "Caffe's come from generators of its own, in the order in which layers ask. Here they are JAX's: fillers, "
        "dropout and the like have a key made of the seed and the layer's name, so that other layers coming or going "
        "change nothing; crops, mirrors and shuffles have one made of the seed and the place in the data. "
        "Distributions are Caffe's.",
        "common.cpp: one generator for each thread, which all layers share",
        'layer { name: "x" type: "Input" top: "x" input_param { shape { dim: 1 dim: 1000 } } }\n'
        'layer { name: "drop" type: "Dropout" bottom: "x" top: "y" }',
        _compare_dropout_masks,
    ),
    Difference(
        "A training that is resumed",
        "Caffe reads its data from the start again. Here a run resumed from caffejax's snapshot continues in the data, "
        "with the same numbers bit for bit. Caffe's .solverstate has no position: the data start again.",
        "sgd_solver.cpp, SnapshotSolverStateToBinaryProto: iter, learned_net, current_step and history are all",
        'layer { name: "data" type: "HDF5Data" top: "x" hdf5_data_param { source: "list.txt" batch_size: 1 } }',
        _compare_resumed_data,
    ),
    Difference(
        "Numbers that are not finite",
        "Caffe trains on, and its snapshots hold NaN. Here training stops before anything is saved.",
        "solver.cpp, Step: the loss is shown and not looked at",
        """layer { name: "x" type: "DummyData" top: "x" top: "t" dummy_data_param {
  shape { dim: 1 dim: 2 } shape { dim: 1 dim: 1 } data_filler { value: 1e30 } data_filler { value: 0 } } }
layer { name: "ip" type: "InnerProduct" bottom: "x" top: "ip"
  inner_product_param { num_output: 1 weight_filler { type: "constant" value: 1 } } }
layer { name: "loss" type: "EuclideanLoss" bottom: "ip" bottom: "t" top: "loss" }""",
        _compare_overflow,
    ),
    Difference(
        "iter_size: 0",
        "Caffe makes no pass, and divides the loss and the gradients by 0. Here such a solver is refused.",
        "solver.cpp, Step: loss /= param_.iter_size(); sgd_solver.cpp, Normalize: Dtype(1.) / param_.iter_size()",
        'base_lr: 1 lr_policy: "fixed" max_iter: 1 iter_size: 0',
        _compare_refused_solver,
    ),
    Difference(
        "The state of another update rule",
        "Caffe takes any .solverstate with as many arrays as the rule needs, so that SGD's velocity becomes RMSProp's "
        "mean of squares, and its root NaN. Here such a state is refused. SGD and Nesterov store the same velocity, "
        "and each continues from the other, as in Caffe.",
        "sgd_solver.cpp, RestoreSolverStateFromBinaryProto: only the number of history blobs is compared",
        _CONSTANT_LOSS,
        _compare_other_rule,
    ),
    Difference(
        "Two runs with one snapshot prefix",
        "Caffe leaves the states of an earlier run beside those of a later one that starts at iteration 0. Here the "
        "later run moves them to a folder of their own, with a warning, so that no run resumes from another's state. "
        "Files of weights stay, and are replaced as by Caffe.",
        "solver.cpp, Snapshot: files are written, and nothing else in the folder is looked at",
        _CONSTANT_LOSS,
        _compare_two_runs,
    ),
    Difference(
        "Files beyond 2 GiB",
        "Caffe's protobuf cannot write or read a message of 2 GiB. Here training with such snapshots is refused when "
        "the net is made, and so is such a file before it is written.",
        "io.cpp, kProtoReadBytesLimit = INT_MAX; WriteProtoToBinaryFile: CHECK(proto.SerializeToOstream(&output))",
        """layer { name: "x" type: "DummyData" top: "x" dummy_data_param { shape { dim: 1 dim: 524288 } } }
layer { name: "ip" type: "InnerProduct" bottom: "x" top: "ip" inner_product_param { num_output: 1024 } }
layer { name: "loss" type: "Reduction" bottom: "ip" top: "loss" loss_weight: 1 }""",
        _compare_large_snapshot,
    ),
    Difference(
        "A blob that a script put into a solver's net",
        "After `net.params['ip'][0] = blob` Caffe's passes use the new blob, but the solver goes on to update the old "
        "one, which nothing reads. Here the solver updates the blob that the net uses.",
        "net.cpp, AppendParam: learnable_params_ holds the blobs of the time when the net was made",
        """layer { name: "x" type: "DummyData" top: "x"
  dummy_data_param { shape { dim: 1 dim: 2 } data_filler { value: 1 } } }
layer { name: "ip" type: "InnerProduct" bottom: "x" top: "ip"
  inner_product_param { num_output: 1 bias_term: false } }
layer { name: "loss" type: "Reduction" bottom: "ip" top: "loss" loss_weight: 1 }""",
        _compare_replaced_blob,
    ),
    Difference(
        "The policy plateau",
        "SSD looks at the loss up to the iteration whose rate it is. Here it is up to the one before, as a step is "
        "compiled with its rate: the rate falls an iteration later.",
        "SSD's sgd_solver.cpp, GetLearningRate: this->smoothed_loss_, after the forward pass",
        'base_lr: 1 lr_policy: "plateau" gamma: 0.1 plateau_winsize: 2',
        _compare_plateau_rates,
    ),
    Difference(
        "Lists of images",
        "Caffe takes 0 for the label of a line that has none. Here such lines are refused, all at once.",
        "image_data_layer.cpp, DataLayerSetUp: label = atoi(line.substr(pos + 1).c_str())",
        'layer { name: "data" type: "ImageData" top: "x" top: "label" image_data_param { source: "list.txt" } }',
        _compare_list_without_label,
    ),
]
