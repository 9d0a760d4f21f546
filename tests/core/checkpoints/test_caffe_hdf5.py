"""Weights in HDF5, laid out as Caffe does."""

from pathlib import Path

import h5py
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from caffejax.base.errors import WeightsError
from caffejax.core.checkpoints.caffe_hdf5 import read_caffemodel_h5, write_caffemodel_h5
from caffejax.core.checkpoints.caffemodel import read_caffemodel, write_caffemodel
from caffejax.core.checkpoints.solverstate import SolverState, read_solverstate, write_solverstate
from caffejax.core.schema import caffe_pb2

GOLDEN = Path(__file__).resolve().parents[2] / "golden" / "weights"

blobs = arrays.arrays(np.float32, arrays.array_shapes(min_dims=0, max_dims=5, min_side=0, max_side=4))
# no digits: `a/0` is also blob 0 of `a`
names = st.text(st.characters(exclude_categories=["Cs", "Nd"], exclude_characters="/.\0"), min_size=1, max_size=8)
paths = st.lists(names, min_size=1, max_size=3).map("/".join)


def read_hdf5_items(path: Path) -> dict[str, object]:
    result: dict[str, object] = {}
    with h5py.File(path) as file:
        file.visititems(
            lambda name, item: result.update(
                {name: (item.dtype, item[()].tolist()) if isinstance(item, h5py.Dataset) else "group"}
            )
        )
    return result


def assert_same_blobs(actual, expected) -> None:
    assert list(actual) == list(expected)
    for name, expected_blobs in expected.items():
        for a, b in zip(actual[name], expected_blobs, strict=True):
            np.testing.assert_array_equal(a, b, strict=True)


@pytest.mark.parametrize(
    "name", ["current_h5.caffemodel.h5", "shared_h5.caffemodel.h5", "snapdiff_iter_2.caffemodel.h5"]
)
def test_writing_what_was_read_gives_caffes_file(tmp_path, name):
    stored = read_caffemodel(GOLDEN / name)
    diffs = read_caffemodel_h5(GOLDEN / name, "diff") if name.startswith("snapdiff") else None
    write_caffemodel_h5(tmp_path / name, stored, diffs)
    assert read_hdf5_items(tmp_path / name) == read_hdf5_items(GOLDEN / name)


@given(st.dictionaries(paths, st.lists(blobs, max_size=3), max_size=4))
def test_hdf5_files_are_read_as_written(tmp_path_factory, model):
    path = tmp_path_factory.mktemp("h5") / "x.caffemodel.h5"
    write_caffemodel_h5(path, model)
    stored = read_caffemodel(path)
    assert {k for k, v in model.items() if v} <= set(stored) <= set(model)
    assert_same_blobs({k: stored[k] for k in model if model[k]}, {k: v for k, v in model.items() if v})


@given(st.dictionaries(names, st.lists(blobs, max_size=3), min_size=1, max_size=4))
def test_binary_files_are_read_as_written(tmp_path_factory, model):
    path = tmp_path_factory.mktemp("binary") / "x.caffemodel"
    write_caffemodel(path, caffe_pb2.NetParameter(layer=[{"name": name} for name in model]), model)
    assert_same_blobs(read_caffemodel(path), model)


@given(st.integers(0, 2**31 - 1), st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")), st.data())
def test_solver_states_are_read_as_written(tmp_path_factory, iteration, learned_net, data):
    state = SolverState(iteration, learned_net, tuple(data.draw(st.lists(blobs, max_size=12))), iteration // 7)
    for suffix in ("", ".h5"):
        path = tmp_path_factory.mktemp("state") / f"x.solverstate{suffix}"
        write_solverstate(path, state)
        restored = read_solverstate(path)
        assert (restored.iteration, restored.learned_net, restored.current_step) == (
            iteration,
            learned_net,
            iteration // 7,
        )
        assert_same_blobs({"": restored.history}, {"": state.history})


def test_slashes_in_names_become_nested_groups(tmp_path):
    path = tmp_path / "x.h5"
    model = {"inception/1x1": [np.ones(3)], "inception": [np.zeros(2)], "inception/relu": []}
    write_caffemodel_h5(path, model)
    with h5py.File(path) as file:
        assert file["data/inception/1x1/0"].shape == (3,)
    assert_same_blobs(read_caffemodel(path), {name: [np.float32(b) for b in model[name]] for name in sorted(model)})


@pytest.mark.parametrize("names", [["a", "a"], [""], ["."], ["/a"], ["a//b"], ["a\0b"]])
def test_names_that_hdf5_cannot_store_are_refused(tmp_path, names):
    with pytest.raises(WeightsError, match=r"HDF5 cannot store a layer of this name.*write a \.caffemodel"):
        write_caffemodel_h5(tmp_path / "x.h5", {}, layers=names)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("model", [{"a/0": [1.0], "a": [2.0]}, {"a": [1.0], "a/0": [2.0]}])
def test_a_failed_write_leaves_the_file_unchanged(tmp_path, model):
    path = tmp_path / "x.h5"
    path.write_bytes(b"before")
    with pytest.raises(WeightsError, match=f"^{path}: layer 'a/0': HDF5 cannot store a layer of this name beside"):
        write_caffemodel_h5(path, model)
    assert path.read_bytes() == b"before"
    assert list(tmp_path.iterdir()) == [path]


def test_missing_folders_are_named(tmp_path):
    with pytest.raises(WeightsError, match="cannot be written: No such file or directory; create the folder first"):
        write_caffemodel_h5(tmp_path / "none" / "x.h5", {})
    with pytest.raises(WeightsError, match="no such file"):
        read_caffemodel_h5(tmp_path / "none" / "x.h5")


def write_hdf5(tmp_path, content) -> Path:
    path = tmp_path / "bad.h5"
    with h5py.File(path, "w") as file:
        for name, value in content.items():
            file[name] = value
    return path


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"history/0": 1.0, "iter": [1]}, r"has no group 'data' \(this is a solver state"),
        ({"other": 1.0}, "has no group 'data'; is it"),
        ({"data": 1.0}, "not a .caffemodel.h5"),
        ({"data/x/weights": 1.0}, "'weights' in /data/x is not the number of a blob"),
        ({"data/x/99999999999": 1.0}, "not the number of a blob"),
        ({"data/x/0": "text"}, "/data/x/0 holds object, not numbers"),
        ({"data/x/0": h5py.SoftLink("/data/x/0")}, None),
        ({"data/x/0": h5py.ExternalLink("/etc/passwd", "/")}, None),
    ],
)  # fmt: skip
def test_invalid_weight_files_are_refused(tmp_path, content, message):
    path = write_hdf5(tmp_path, content)
    if message is None:
        assert read_caffemodel(path) == {}
        return
    with pytest.raises(WeightsError, match=f"^{path}: .*{message}"):
        read_caffemodel(path)


def test_a_shape_that_claims_all_memory_is_refused(tmp_path):
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file.create_dataset("data/x/0", (10**9, 10**6), np.float32, chunks=(1024, 1024))
    with pytest.raises(WeightsError, match="/data/x/0 has a shape but no values"):
        read_caffemodel(tmp_path / "x.h5")


def test_cyclic_groups_are_read_once(tmp_path):
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["data/x/0"] = [1.0]
        for name in "abc":
            file[f"data/x/{name}"] = file["data"]
            file[f"data/{name}"] = file["data/x"]
    (blobs,) = read_caffemodel(tmp_path / "x.h5").values()
    assert blobs[0].tolist() == [1]


def test_integers_and_doubles_are_read(tmp_path):
    path = write_hdf5(tmp_path, {"data/x/0": [1, 2], "data/x/1": np.float64([3])})
    assert_same_blobs(read_caffemodel(path), {"x": [np.float32([1, 2]), np.float32([3])]})


@pytest.mark.parametrize("name", ["current_h5.caffemodel.h5", "snapdiff_iter_2.solverstate.h5"])
def test_every_truncation_is_detected(tmp_path, name):
    content = (GOLDEN / name).read_bytes()
    read_file = read_solverstate if "state" in name else read_caffemodel
    for size in range(0, len(content) - 1, 97):
        (tmp_path / "x.h5").write_bytes(content[:size])
        with pytest.raises(WeightsError, match=f"^{tmp_path}/x.h5: "):
            read_file(tmp_path / "x.h5")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"data/x/0": 1.0}, r"has no history \(these are weights"),
        ({"iter": [1, 2], "history/0": 1.0}, "not a .solverstate.h5"),
        ({"iter": "many", "history/0": 1.0}, "not a .solverstate.h5"),
        ({"iter": [1 << 40], "history/0": 1.0}, "/iter is not one integer from 0 to"),
        ({"iter": [1], "history/1": 1.0}, "history blobs are missing"),
        ({"iter": [1], "history/0": 1.0, "learned_net": [1.0, 2.0]}, None),
    ],
)  # fmt: skip
def test_invalid_states_are_refused(tmp_path, content, message):
    path = write_hdf5(tmp_path, content)
    with pytest.raises(WeightsError, match=f"^{path}: .*{message or ''}"):
        read_solverstate(path)


@pytest.mark.parametrize("content", [b"", b"\x08", b"<html>", b"\x12\x03abc"])
def test_invalid_binary_states_are_refused(tmp_path, content):
    (tmp_path / "x.solverstate").write_bytes(content)
    with pytest.raises(WeightsError, match=r"x\.solverstate: not a \.solverstate, or damaged or cut short"):
        read_solverstate(tmp_path / "x.solverstate")
