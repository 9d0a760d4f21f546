"""Resuming from Caffe's .solverstate files, and writing .solverstate files that Caffe could resume."""

import json
import shutil
from contextlib import closing
from pathlib import Path
from typing import Any

import h5py
import jax
import numpy as np
import pytest

from caffejax.base.errors import WeightsError
from caffejax.core.checkpoints.solverstate import SolverState, read_solverstate, write_solverstate
from caffejax.core.schema import caffe_pb2, read_solver
from caffejax.core.solver import Solver

GOLDEN = Path(__file__).parents[2] / "golden"
CASES = [c["case"] for c in json.loads((GOLDEN / "resume" / "index.json").read_text())]
STATES = ["snap_iter_10.solverstate", "snap_iter_10.solverstate.h5"]
ADAM, SGD = "adam_batchnorm_iter_size3", "sgd_step_momentum_l2"


@pytest.fixture(autouse=True)
def _use_temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # where snapshot_prefix points


def read_hdf5_tree(path: Path) -> dict[str, Any]:
    """Return all contents of an HDF5 file: groups, and values with their types."""
    result: dict[str, Any] = {}

    def visit(name: str, item: Any) -> None:
        is_group = isinstance(item, h5py.Group)
        result[name] = "group" if is_group else (item.dtype, item.shape, item.id.get_type().encode(), item[()].tolist())

    with h5py.File(path) as file:
        file.visititems(visit)
    return result


@pytest.mark.parametrize("case", CASES)
def test_resumes_as_caffe_does(case: str) -> None:
    """Both formats are read. The weight file is beside the state, although the working directory is another."""
    with closing(Solver(GOLDEN / "solver" / case / "solver.prototxt")) as solver:
        for state in STATES:  # of the second nothing is compiled again
            solver.restore(GOLDEN / "solver" / case / state)
            assert_follows_recording(solver, dict(np.load(GOLDEN / "resume" / f"{case}.npz")))


def assert_follows_recording(solver: Solver, expected: dict[str, Any]) -> None:
    """Train for ten iterations and compare with the recording."""
    assert solver.iteration == 10
    num_checked = 0
    for j in range(10):
        np.testing.assert_allclose(solver.rate, expected["lr"][j], rtol=3e-7)
        solver.step(1)
        np.testing.assert_allclose(solver.smoothed_loss, expected["loss"][j], rtol=1e-4, atol=2e-6)
        for name in (n for n in expected if n.startswith(f"param/{solver.iteration}/")):
            _, _, layer, index = name.split("/")
            param = solver.net.graph.layer(layer).params[int(index)]
            arrays = solver.train_state.params if param.spec.learnable else solver.train_state.state
            actual = arrays[param.owner.layer][param.owner.name]
            np.testing.assert_allclose(actual, expected[name], rtol=1e-4, atol=2e-6, err_msg=name)
            num_checked += solver.iteration == 20
    assert num_checked


def describe_types(state: Any) -> list[Any]:
    return [(jax.typeof(x), jax.typeof(x).weak_type, x.committed, x.devices()) for x in jax.tree.leaves(state)]


def test_a_restored_state_has_the_types_of_the_initial_state() -> None:
    """Otherwise the step would be compiled once for the restored state and again for the next state."""
    with closing(Solver(GOLDEN / "solver" / SGD / "solver.prototxt")) as solver:
        types = describe_types(solver.train_state)
        assert types
        for state in STATES:
            solver.restore(GOLDEN / "solver" / SGD / state)
            assert describe_types(solver.train_state) == types
        solver.snapshot()
        solver.restore("snap.orbax")
        assert describe_types(solver.train_state) == types


@pytest.mark.parametrize("case", CASES)
def test_a_restored_state_is_saved_as_caffes_file(case: str) -> None:
    folder = GOLDEN / "solver" / case
    param = read_solver(folder / "solver.prototxt")
    for format, suffix in ((caffe_pb2.SolverParameter.BINARYPROTO, ""), (caffe_pb2.SolverParameter.HDF5, ".h5")):
        param.snapshot_format = format
        solver = Solver(param, file=folder / "solver.prototxt")
        solver.restore(folder / f"snap_iter_10.solverstate{suffix}")
        solver.snapshot()
        solver.close()
        for name, message in (("caffemodel", caffe_pb2.NetParameter), ("solverstate", caffe_pb2.SolverState)):
            ours, theirs = Path(f"snap_iter_10.{name}{suffix}"), folder / f"snap_iter_10.{name}{suffix}"
            if suffix:
                own_tree = {k: v for k, v in read_hdf5_tree(ours).items() if k != "caffejax"}
                assert own_tree == read_hdf5_tree(theirs)
            else:
                own_message = message.FromString(ours.read_bytes())
                own_message.DiscardUnknownFields()  # our own record, which Caffe passes over
                assert own_message == message.FromString(theirs.read_bytes())


@pytest.mark.parametrize("suffix", ["", ".h5"])
def test_snapshot_diff_stores_the_last_update(suffix: str) -> None:
    weights = GOLDEN / "weights"
    format = "HDF5" if suffix else "BINARYPROTO"
    solver = Solver(
        f'net: "{weights / "snapdiff.prototxt"}" base_lr: 0.1 momentum: 0.7 lr_policy: "fixed" '
        f'snapshot_diff: true snapshot_prefix: "snapdiff" snapshot_format: {format}\n'
    )
    solver.step(2)
    solver.snapshot()
    solver.close()
    recorded = dict(np.load(weights / "snapdiff.npz"))
    assert {name.split("/")[0] for name in recorded} == {"param", "diff"}
    for name, expected in recorded.items():
        section, layer, index = name.split("/")
        if suffix:
            with h5py.File("snapdiff_iter_2.caffemodel.h5") as file:
                actual = file[name.replace("param/", "data/")][()]
        else:
            net = caffe_pb2.NetParameter.FromString(Path("snapdiff_iter_2.caffemodel").read_bytes())
            blob = next(result for result in net.layer if result.name == layer).blobs[int(index)]
            actual = np.reshape(blob.data if section == "param" else blob.diff, expected.shape)
        np.testing.assert_allclose(actual, expected, rtol=1e-6, err_msg=name)
    ours, theirs = (read_solverstate(f / f"snapdiff_iter_2.solverstate{suffix}") for f in (Path(), weights))
    assert (ours.iteration, ours.learned_net) == (theirs.iteration, theirs.learned_net)
    for actual, expected in zip(ours.history, theirs.history, strict=True):
        np.testing.assert_allclose(actual, expected, rtol=1e-6)


def copy_case(case: str) -> Path:
    shutil.copytree(GOLDEN / "solver" / case, "case")
    return Path("case")


@pytest.mark.parametrize("state", STATES)
def test_a_truncated_state_is_refused(state: str) -> None:
    folder = copy_case(ADAM)
    solver = Solver(folder / "solver.prototxt")
    intact_bytes = (folder / state).read_bytes()
    for size in (0, 9, len(intact_bytes) // 2, len(intact_bytes) - 300):
        (folder / state).write_bytes(intact_bytes[:size])
        with pytest.raises(WeightsError, match=rf"{state}: "):
            solver.restore(folder / state)
    assert solver.iteration == 0


def test_the_state_of_another_solver_or_net_is_refused() -> None:
    folder = copy_case(ADAM)
    state, text = folder / STATES[0], (folder / "solver.prototxt").read_text()
    (folder / "solver.prototxt").write_text(text.replace('"Adam"', '"SGD"'))
    with pytest.raises(WeightsError, match=r"solverstate: has 16 history blobs, but SGD on this net needs 8 "):
        Solver(folder / "solver.prototxt").restore(state)
    stored = read_solverstate(state)
    wrong_history = tuple(np.zeros((2, 2), np.float32) if i == 6 else h for i, h in enumerate(stored.history))
    write_solverstate(state, SolverState(10, stored.learned_net, wrong_history))
    (folder / "solver.prototxt").write_text(text)
    with pytest.raises(
        WeightsError, match=r"blob 6 \(layer 'ip', blob 0\) has shape 2 x 2 in the file, but 5 x 48 in the net"
    ):
        Solver(folder / "solver.prototxt").restore(state)
    net = (folder / "net.prototxt").read_text()
    (folder / "net.prototxt").write_text(net.replace("num_output: 5", "num_output: 6"))
    with pytest.raises(WeightsError, match=r"layer 'ip': blob 0 is 5 x 48 in the file, 6 x 48 in the net; use"):
        Solver(folder / "solver.prototxt").restore(state)


def test_missing_weights_are_named() -> None:
    folder = copy_case(SGD)
    (folder / "snap_iter_10.caffemodel").unlink()
    with pytest.raises(WeightsError, match=r"no file 'snap_iter_10.caffemodel'.*put the file into the same folder"):
        Solver(folder / "solver.prototxt").restore(folder / STATES[0])
    with pytest.raises(WeightsError, match="no such file"):
        Solver(folder / "solver.prototxt").restore(folder / "none.solverstate")


def test_the_data_restarts_at_the_first_row() -> None:
    """This follows Caffe, even if the solver has already read data."""
    folder = copy_case(SGD)
    fresh, advanced = (Solver(folder / "solver.prototxt") for _ in range(2))
    advanced.step(3)
    for solver in (fresh, advanced):
        solver.restore(folder / STATES[0])
        solver.step(2)
    np.testing.assert_array_equal(*(s.train_state.params["ip"]["weight"] for s in (fresh, advanced)))
