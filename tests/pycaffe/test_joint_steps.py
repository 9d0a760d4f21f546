"""`step` and `solve` compute several iterations of small nets together; nobody can tell, but by the time."""

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

import caffejax.pycaffe as caffe
from caffejax import CaffejaxError

NET = """
layer { name: "data" type: "HDF5Data" top: "data" top: "label" hdf5_data_param { source: "data.txt" batch_size: 5 } }
layer { name: "ip" type: "InnerProduct" bottom: "data" top: "ip"
  inner_product_param { num_output: 6 weight_filler { type: "xavier" } } }
layer { name: "bn" type: "BatchNorm" bottom: "ip" top: "bn" }
layer { name: "drop" type: "Dropout" bottom: "bn" top: "bn" }
layer { name: "fc" type: "InnerProduct" bottom: "bn" top: "fc"
  inner_product_param { num_output: 3 weight_filler { type: "xavier" } } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "fc" bottom: "label" top: "loss" }
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    write_data()
    return tmp_path


def write_data(bad_batch: int | None = None) -> None:
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, 200).astype(np.float32)
    if bad_batch is not None:
        labels[5 * bad_batch] = 7
    with h5py.File("data.h5", "w") as file:
        file["data"], file["label"] = rng.normal(size=(200, 4)).astype(np.float32), labels
    Path("data.txt").write_text("data.h5\n")


def make_solver(settings: str = "") -> Any:
    Path("solver.prototxt").write_text(
        f"""net_param {{ {NET} }} base_lr: 0.1 lr_policy: "step" stepsize: 8 gamma: 0.8 momentum: 0.9 random_seed: 5
        max_iter: 70 snapshot_prefix: "snap" test_iter: 2 test_interval: 30 {settings}"""
    )
    return caffe.get_solver("solver.prototxt")


def read_arrays(solver: Any) -> list[np.ndarray]:
    """Return data and diffs of all params and blobs."""
    blobs = [blob for blobs in solver.net.params.values() for blob in blobs] + list(solver.net.blobs.values())
    return [array.copy() for blob in blobs for array in (blob.data, blob.diff)]


def assert_same(solver: Any, other: Any) -> None:
    assert solver.iter == other.iter
    for a, b in zip(read_arrays(solver), read_arrays(other), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("settings", ["", 'type: "Adam" momentum2: 0.9 iter_size: 2 clip_gradients: 0.5 display: 9'])
def test_a_call_for_many_iterations_leaves_what_many_calls_leave(settings: str) -> None:
    solver, single, resumed = make_solver(settings), make_solver(settings), make_solver(settings)
    assert solver._updater.steps_per_dispatch > 1
    solver.step(47)
    for _ in range(47):
        single.step(1)
    assert_same(solver, single)
    single.snapshot()
    resumed.restore("snap_iter_47.orbax" if Path("snap_iter_47.orbax").exists() else "snap.orbax")
    for each in (solver, resumed):
        each.solve()
    assert_same(solver, resumed)


@pytest.mark.parametrize("watched", [False, True])
def test_a_test_leaves_its_last_batch_in_the_blobs(watched: bool) -> None:
    solver, passes = make_solver(), []
    net = NET.split('layer { name: "bn"')[0] + NET[NET.index('layer { name: "fc"') :].replace('"bn"', '"ip"')
    Path("solver.prototxt").write_text(
        Path("solver.prototxt").read_text().replace(NET, net).replace("iter: 2", "iter: 9")
    )
    solver = caffe.get_solver("solver.prototxt")
    if watched:
        solver.test_nets[0].before_forward(passes.append)
    solver.step(1)
    assert bool(passes) == watched
    blobs = solver.test_nets[0].blobs
    with h5py.File("data.h5") as file:
        np.testing.assert_array_equal(blobs["data"].data, file["data"][40:45])
        x = file["data"][40:45]
    first = caffe.get_solver("solver.prototxt")  # with the params of the test
    weight, bias = (blob.data for blob in first.net.params["ip"])
    np.testing.assert_allclose(blobs["ip"].data, x @ weight.T + bias, rtol=1e-5, atol=1e-6)
    solver.step(30)  # the next test goes on where this one has ended
    with h5py.File("data.h5") as file:
        np.testing.assert_array_equal(blobs["data"].data, file["data"][85:90])


def test_callbacks_see_the_blobs_of_each_iteration() -> None:
    solver, losses = make_solver(), []
    solver.add_callback(lambda: None, lambda: losses.append(float(solver.net.blobs["loss"].data)))
    solver.step(12)
    assert len(set(losses)) == 12
    assert solver._updater.steps_per_dispatch == 1


def test_data_that_cannot_be_read_end_at_their_iteration() -> None:
    write_data(bad_batch=17)
    solver, single = make_solver(), make_solver()
    single.step(1)
    for each in (solver, single):
        with pytest.raises(CaffejaxError, match="label"):
            each.step(40)
        assert each.iter == 17
    for a, b in zip(*([b.data for bs in s.net.params.values() for b in bs] for s in (solver, single)), strict=True):
        np.testing.assert_array_equal(a, b)
