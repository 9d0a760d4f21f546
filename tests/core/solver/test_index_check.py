"""An index out of range gives NaN in a pure function, and an error in the functions that run nets for users."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import caffejax.pycaffe as caffe
from caffejax import Net, Solver
from caffejax.base.databases import write_lmdb
from caffejax.base.errors import LayerError
from caffejax.cli import main
from caffejax.core.schema import caffe_pb2

INPUTS = """
layer { name: "in" type: "Input" top: "x" top: "i" input_param { shape { dim: 4 dim: 3 } shape { dim: 4 } } }
"""
COMPUTED_INDICES = 'layer { name: "more" type: "Power" bottom: "i" top: "at" power_param { shift: 1 } }'
PICK = 'layer { name: "pick" type: "BatchReindex" bottom: "x" bottom: "%s" top: "y" }'
EMBED = 'layer { name: "embed" type: "Embed" bottom: "%s" top: "y" embed_param { input_dim: 4 num_output: 2 } }'

# the labels of a database, plus one, as indices
DATABASE = """
layer { name: "d" type: "Data" top: "x" top: "i" data_param { source: "%s" batch_size: 4 backend: LMDB } }
layer { name: "more" type: "Power" bottom: "i" top: "at" power_param { shift: 1 } }
layer { name: "ip" type: "InnerProduct" bottom: "x" top: "ip" inner_product_param { num_output: 3 } }
layer { name: "pick" type: "BatchReindex" bottom: "ip" bottom: "at" top: "y" }
layer { name: "loss" type: "EuclideanLoss" bottom: "y" bottom: "ip" top: "loss" }
"""
OUT_OF_RANGE = r"layer 'pick' \(BatchReindex\): index 4 at \[2\] of bottom 'at' is out of range: it must be from 0 to 3"


def make_net(text: str, indices: list[float]) -> Any:
    net = caffe.Net("force_backward: false\n" + INPUTS + text, caffe.TRAIN)
    net.blobs["x"].data[...] = 1
    net.blobs["i"].data[...] = indices
    return net


@pytest.mark.parametrize("has_callback", [False, True])
@pytest.mark.parametrize(
    ("text", "indices", "message"),
    [
        (PICK % "i", [0, 3, 4, 9], r"layer 'pick' \(BatchReindex\): index 4 at \[2\] of bottom 'i' .* 0 to 3"),
        (PICK % "i", [0, -1, 2, 2], r"index -1 at \[1\]"),
        (PICK % "i", [0, np.nan, 2, 2], r"index nan at \[1\]"),
        (COMPUTED_INDICES + PICK % "at", [0, 0, 3, 0], OUT_OF_RANGE),
        (
            COMPUTED_INDICES + EMBED % "at",
            [0, 0, 0, 3],
            r"layer 'embed' \(Embed\): index 4 at \[3\] of bottom 'at' .* 0 to 3",
        ),
    ],
)
def test_pycaffe_raises_for_an_index_out_of_range(
    text: str, indices: list[float], message: str, has_callback: bool
) -> None:
    net = make_net(text, indices)
    if has_callback:
        net.after_forward(lambda i: None)
    with pytest.raises(LayerError, match=message):
        net.forward()
    net.blobs["i"].data[...] = [0, 1, 2, 0]
    assert np.isfinite(net.forward()["y"]).all()


def test_truncated_values_count_as_indices() -> None:
    assert np.isfinite(make_net(PICK % "i", [0, 3.9, -0.9, 1]).forward()["y"]).all()


def test_a_compiled_net_returns_nan() -> None:
    net = Net(INPUTS + PICK % "i")
    blobs, _ = net.forward({}, {}, {"x": np.ones((4, 3)), "i": np.array([0, 1, 4, -1])})
    np.testing.assert_array_equal(np.isnan(blobs["y"]).all(axis=1), [False, False, True, True])


def make_net_with_database(folder: Path, labels: list[int]) -> str:
    def serialize_datum(label: int) -> bytes:
        return caffe_pb2.Datum(channels=1, height=1, width=2, data=b"\1\2", label=label).SerializeToString()

    path = folder / "db"
    write_lmdb(path, ((b"%03d" % n, serialize_datum(label)) for n, label in enumerate(labels)))
    return DATABASE % path


@pytest.fixture
def net_with_invalid_index(tmp_path: Path) -> Path:
    path = tmp_path / "net.prototxt"
    path.write_text(make_net_with_database(tmp_path, [0, 0, 3, 1]))
    return path


@pytest.mark.parametrize(
    "command",
    [
        lambda net, weights: ["test", f"--model={net}", f"--weights={weights}", "--iterations=1"],
        lambda net, weights: ["time", f"--model={net}", "--iterations=1"],
        lambda net, weights: ["extract_features", str(weights), str(net), "y", str(net.parent / "out"), "1", "npz"],
        lambda net, weights: ["train", f"--solver={net.parent / 'solver.prototxt'}"],
    ],
    ids=["test", "time", "extract_features", "train"],
)
def test_commands_stop_at_indices_out_of_range(
    net_with_invalid_index: Path, command: Callable[[Path, Path], list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    weights = net_with_invalid_index.parent / "w.caffemodel"
    caffe.Net(str(net_with_invalid_index), caffe.TEST).save(str(weights))
    (net_with_invalid_index.parent / "solver.prototxt").write_text(
        f'net: "{net_with_invalid_index}" base_lr: 0.1 lr_policy: "fixed" max_iter: 1 snapshot_after_train: false'
    )
    assert main(command(net_with_invalid_index, weights)) == 1
    assert re.search(OUT_OF_RANGE, capsys.readouterr().err)


@pytest.mark.parametrize("iter_size", [1, 2])
def test_training_on_valid_indices_continues(tmp_path: Path, iter_size: int) -> None:
    settings = f'base_lr: 0.01 lr_policy: "fixed" max_iter: 2 snapshot_after_train: false iter_size: {iter_size}'
    solver = Solver(f"net_param {{ {make_net_with_database(tmp_path, [0, 1, 2, 0])} }} {settings}")
    solver.solve()
    assert all(np.isfinite(x).all() for x in jax.tree.leaves(solver.variables))
    solver.close()


def test_the_range_of_indices_is_the_number_of_rows(tmp_path: Path) -> None:
    """Index 3 of 4 rows of 3 numbers; labels may not be 3 where there are 3 scores."""
    net = make_net_with_database(tmp_path, [2, 1, 0, 3]).replace('bottom: "at" top: "y"', 'bottom: "i" top: "y"')
    solver = Solver(f'net_param {{ {net} }} base_lr: 0.01 lr_policy: "fixed" max_iter: 1 snapshot_after_train: false')
    solver.step(1)
    assert np.isfinite(solver.smoothed_loss)
    solver.close()
