"""Conversion of weights from each format to every other format."""

import sys
from itertools import permutations
from pathlib import Path

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from caffejax.base.errors import WeightsError
from caffejax.cli import main
from caffejax.core.checkpoints.array_files import read_npz, read_safetensors, write_npz, write_safetensors
from caffejax.core.checkpoints.caffemodel import read_caffemodel
from caffejax.core.checkpoints.load_save import load_weights
from caffejax.core.checkpoints.weight_formats import FORMATS
from caffejax.core.program.net import Net
from caffejax.core.solver import Solver

GOLDEN = Path(__file__).resolve().parents[2] / "golden"
WEIGHTS = GOLDEN / "weights"


@pytest.fixture(autouse=True)
def _use_temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def convert(source: object, target: str, *flags: str) -> None:
    assert main(["convert", f"--from={source}", f"--to={target}", *flags]) == 0


def get_conversion_error(capsys: pytest.CaptureFixture[str], source: object, target: str, *flags: str) -> str:
    assert main(["convert", f"--from={source}", f"--to={target}", *flags]) == 1
    err = capsys.readouterr().err
    assert "Traceback" not in err
    return err


def load_variables(name: str, path: object) -> object:
    net = Net(WEIGHTS / f"{name}.prototxt", "TEST")
    return load_weights(path, net.graph, net.init(jax.random.key(0)))


@pytest.mark.parametrize(("first_format", "second_format"), list(permutations(FORMATS, 2)))
@pytest.mark.parametrize("name", ["current", "shared"])
def test_weights_survive_every_pair_of_formats(name: str, first_format: str, second_format: str) -> None:
    model = f"--model={WEIGHTS / name}.prototxt"
    convert(WEIGHTS / f"{name}.caffemodel", f"a{first_format}", model)
    convert(f"a{first_format}", f"b{second_format}", model)
    convert(f"b{second_format}", "c.caffemodel", model)
    jax.tree.map(
        np.testing.assert_array_equal,
        load_variables(name, "c.caffemodel"),
        load_variables(name, WEIGHTS / f"{name}.caffemodel"),
    )
    if second_format == ".h5":
        jax.tree.map(np.testing.assert_array_equal, load_variables(name, "b.h5"), load_variables(name, "c.caffemodel"))


def test_layers_without_blobs_are_not_counted(capsys: pytest.CaptureFixture[str]) -> None:
    layers = read_caffemodel(WEIGHTS / "current.caffemodel")
    blob_lists = [blobs for blobs in layers.values() if blobs]
    assert len(blob_lists) < len(layers)
    convert(WEIGHTS / "current.caffemodel", "x.npz")
    assert f"Wrote {sum(map(len, blob_lists))} blobs of {len(blob_lists)} layers, " in capsys.readouterr().err


@pytest.mark.parametrize("name", ["v0_legacy4d", "v1_legacy4d", "double_nd"])
def test_legacy_shapes_are_converted_with_the_model(capsys: pytest.CaptureFixture[str], name: str) -> None:
    """Kept where they can be, modern elsewhere; the types of the layers say what that is."""
    source, model = WEIGHTS / f"{name}.caffemodel", f"--model={WEIGHTS / 'plain.prototxt'}"
    convert(source, "kept.caffemodel")
    convert(source, "modern.h5", model)
    for path in ("kept.caffemodel", "modern.h5"):
        jax.tree.map(np.testing.assert_array_equal, load_variables("plain", path), load_variables("plain", source))
    if "legacy" in name:
        assert "4-D shapes, as in files before 2015; name the model with --model" in get_conversion_error(
            capsys, source, "x.npz"
        )
        assert not Path("x.npz").exists()


@pytest.mark.parametrize("step_path", ["", "/3"])
def test_a_training_checkpoint_is_converted(step_path: str) -> None:
    case = GOLDEN / "solver" / "adam_batchnorm_iter_size3"
    solver = Solver(case / "solver.prototxt", weights=[case / "init.caffemodel"])
    solver.step(3)
    solver.snapshot()
    solver.close()
    convert(f"snap.orbax{step_path}", "x.caffemodel", f"--model={case / 'net.prototxt'}")
    actual, expected = read_caffemodel("x.caffemodel"), read_caffemodel("snap_iter_3.caffemodel")
    assert set(actual) == {name for name, blobs in expected.items() if blobs}
    for name, blobs in actual.items():
        for a, b in zip(blobs, expected[name], strict=True):
            np.testing.assert_array_equal(a, b)
    convert("x.caffemodel", "weights.orbax/5")
    with pytest.raises(WeightsError, match="contains only weights"):
        solver.restore("weights.orbax/5")


def test_recurrent_state_is_not_exported_as_a_weight() -> None:
    net = (
        'layer { name: "d" type: "DummyData" top: "x" top: "c" top: "y" '
        "dummy_data_param { shape { dim: 2 dim: 1 dim: 3 } "
        "shape { dim: 2 dim: 1 } shape { dim: 2 dim: 1 dim: 4 } } } "
        'layer { name: "l" type: "LSTM" bottom: "x" bottom: "c" top: "h" recurrent_param { num_output: 4 } } '
        'layer { name: "loss" type: "EuclideanLoss" bottom: "h" bottom: "y" top: "loss" }'
    )
    solver = Solver(f'net_param {{ {net} }} base_lr: 0.1 lr_policy: "fixed" snapshot_prefix: "s"\n')
    solver.step(1)
    solver.snapshot()
    solver.close()
    Path("s.orbax").rename("s.orbax.old")  # as a later run moves it
    convert("s.orbax.old/1", "y.caffemodel")
    convert("s.orbax.old", "x.caffemodel")
    assert Path("x.caffemodel").read_bytes() == Path("y.caffemodel").read_bytes()
    blobs = [solver.train_state.params["l"][name] for name in ("weight_x", "bias", "weight_h")]
    assert [b.shape for b in read_caffemodel("x.caffemodel")["l"]] == [b.shape for b in blobs]


def test_errors_name_the_file_and_the_remedy(capsys: pytest.CaptureFixture[str]) -> None:
    current, shared = WEIGHTS / "current.caffemodel", WEIGHTS / "shared_h5.caffemodel.h5"
    assert "unknown format; the name should end in one of .caffemodel, .h5" in get_conversion_error(
        capsys, current, "x.txt"
    )
    assert "did you mean '.npz'?" in get_conversion_error(capsys, current, "x.nzp")
    assert (
        "layer 'ip_b': the file omits a blob that this layer shares; name the model with --model"
        in get_conversion_error(capsys, shared, "x.npz")
    )
    wrong_model = f"--model={WEIGHTS / 'shared.prototxt'}"
    assert "the model has no such layer" in get_conversion_error(capsys, current, "x.npz", wrong_model)
    for name in ("none.npz", "none.safetensors", "none.orbax", "none.caffemodel", "none.h5"):
        assert f"{name}: no such " in get_conversion_error(capsys, name, "x.npz")
    for name in ("bad.npz", "bad.safetensors", "bad.h5", "bad.caffemodel"):
        Path(name).write_bytes(b"junk" * 9)
        message = get_conversion_error(capsys, name, "x.npz")
        suffix = ".caffemodel" if name == "bad.h5" else Path(name).suffix
        assert f"{name}: not a" in message
        assert f" {suffix}" in message
    np.savez("names.npz", weights=np.ones(3), **{"a/0": np.array(["text"])})
    output = get_conversion_error(capsys, "names.npz", "x.caffemodel")
    assert "the file has no weights, only 'weights', 'a/0': no numbers named <layer>.<blob>" in output
    assert sorted(p.name for p in Path().glob("x*")) == []


def test_safetensors_is_optional(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "safetensors", None)
    output = get_conversion_error(capsys, WEIGHTS / "current.caffemodel", "x.safetensors")
    assert "pip install safetensors" in output


def test_objects_in_an_npz_are_not_unpickled() -> None:
    np.savez("x.npz", **{"a/0": np.array([print], object)})
    with pytest.raises(WeightsError, match=r"its member 'a/0.npy' is not an array.*holds Python objects"):
        FORMATS[".npz"].read("x.npz")


names = st.text(st.characters(categories=["L", "N"]), min_size=1, max_size=9).map("layer/{}/0".format)


@settings(max_examples=50)
@given(st.dictionaries(names, arrays.arrays(np.float32, arrays.array_shapes(min_dims=0, max_dims=4, min_side=0))))
def test_files_of_named_arrays_store_any_arrays(tmp_path_factory, model):
    folder = tmp_path_factory.mktemp("flat")
    for write, read in ((write_npz, read_npz), (write_safetensors, read_safetensors)):
        write(folder / "x", model)
        result = read(folder / "x")
        assert set(result) == set(model)
        for name, array in model.items():
            np.testing.assert_array_equal(result[name], array, strict=True)


def test_npz_files_are_read_by_numpy() -> None:
    write_npz("x.npz", {"file": np.ones(3, np.float32), "a/0": np.zeros((2, 2), np.float32)})
    with np.load("x.npz") as file:
        assert {name: file[name].shape for name in file} == {"file": (3,), "a/0": (2, 2)}
