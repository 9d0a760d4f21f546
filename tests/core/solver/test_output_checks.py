"""Files that a run will write are checked when its nets are made, before it trains."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from caffejax.base.errors import CaffejaxError, SolverError, WeightsError
from caffejax.cli import main
from caffejax.core.checkpoints import caffemodel
from caffejax.core.checkpoints.solverstate import SolverState, write_solverstate
from caffejax.core.program.net import Net
from caffejax.core.schema import read_solver
from caffejax.core.solver import Solver
from caffejax.core.solver.output_checks import check_snapshot_files
from writing_layers import NET, check_each_file_has_one_writer, check_folders_can_be_written

# layers that write, with their files in a folder
HDF5_OUTPUT = """layer { name: "out" type: "HDF5Output" bottom: "ip" bottom: "b"
    hdf5_output_param { file_name: "FOLDER/out.h5" } RULE }"""


@pytest.fixture(autouse=True)
def _use_temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_two_nets_or_layers_that_write_one_file_are_refused() -> None:
    check_each_file_has_one_writer(HDF5_OUTPUT)


def test_folders_that_cannot_be_written_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    check_folders_can_be_written(HDF5_OUTPUT, "HDF5Output", monkeypatch)


def test_the_test_command_checks_them(capsys: pytest.CaptureFixture[str]) -> None:
    Path("net.prototxt").write_text(NET + HDF5_OUTPUT.replace("RULE", "").replace("FOLDER", "absent"))
    Path("w.caffemodel").write_bytes(b"")
    assert main(["test", "net.prototxt", "--weights=w.caffemodel"]) == 1
    assert "cannot write" in capsys.readouterr().err


NAMES: list[list[str]] = [
    *(["fc", "fc/0"], ["fc/0", "fc"], ["fc", "fc/1"], ["fc", "fc/0/x"], ["fc", "fc/7"], ["a.b", "a"], [""], ["."]),
    *([".."], ["a/../b"], ["/a"], ["a/"], ["a//b"], ["ä ö ☃"], ["x" * 300], ["a", "A"], ["0"], ["params"], ["*"]),
]


def name_layers(names: list[str]) -> str:
    layers = (
        f'layer {{ name: "{name}" type: "InnerProduct" bottom: "x" top: "t{i}" '
        "inner_product_param { num_output: 2 } }"
        for i, name in enumerate(names)
    )
    return 'layer { name: "in" type: "Input" top: "x" input_param { shape { dim: 1 dim: 2 } } }' + "".join(layers)


def catch(run: Callable[[], object], error_class: type[CaffejaxError]) -> CaffejaxError | None:
    try:
        run()
    except error_class as error:
        return error
    return None


@pytest.mark.parametrize("extension", [".caffemodel", ".caffemodel.h5", ".npz", ".safetensors", ".orbax"])
def test_names_of_layers_are_stored_or_refused_by_name_before_a_file_is_written(extension: str) -> None:
    for i, names in enumerate(NAMES):
        net = Net(name_layers(names), "TRAIN")
        rng = np.random.default_rng(0)
        params = net.map_params(lambda p, rng=rng: rng.standard_normal(p.spec.shape, np.float32))
        path = f"{i}{extension}"
        error = catch(lambda net=net, params=params, path=path: net.save(params, {}, path), WeightsError)
        if error is not None:
            assert error.problems[0].layer in names
            assert "rename" in str(error)
            assert not Path(path).exists()
        else:
            for actual, expected in zip(*map(jax.tree.leaves, (net.load(path)[0], params)), strict=True):
                np.testing.assert_array_equal(actual, expected)
        if extension in (".caffemodel", ".caffemodel.h5"):
            format = "HDF5" if extension.endswith("h5") else "BINARYPROTO"
            param = read_solver(f"snapshot_format: {format}")
            early = catch(lambda param=param, net=net: check_snapshot_files(param, net.graph), SolverError)
            assert (early is None) == (error is None), names
            if early is not None:
                assert early.problems[0].layer in names
                assert "snapshot_format: BINARYPROTO" in str(early)


def test_a_solver_refuses_names_when_its_net_is_made() -> None:
    layers = name_layers(["fc", "fc/0"]).replace('"in"', '"in2"')
    text = f'net_param {{ {NET} {layers} }} base_lr: 0.1 lr_policy: "fixed" snapshot_format: HDF5 snapshot_prefix: "s"'
    data = {"x": np.zeros((2, 2), np.float32)}
    with pytest.raises(SolverError, match=r"layer 'fc/0': .* beside the layer 'fc'.*BINARYPROTO"):
        Solver(text, data=data)
    Solver(f"{text} snapshot_after_train: false", data=data).close()
    Solver(text, data=data, checkpoint_only=True).close()


LARGE = """
layer { name: "x" type: "Input" top: "x" input_param { shape { dim: 1 dim: %d } } }
layer { name: "ip" type: "InnerProduct" bottom: "x" top: "ip"
  inner_product_param { num_output: 1024 bias_term: false } }
layer { name: "loss" type: "Reduction" bottom: "ip" top: "loss" loss_weight: 1 }
"""


@pytest.mark.parametrize(
    ("width", "settings", "kinds"),
    [
        (2**19 - 1, "", ""),
        (2**19, "", "caffemodel solverstate"),
        (2**18, "", ""),
        (2**18, 'type: "Adam"', "solverstate"),
        (2**18, "snapshot_diff: true", "caffemodel"),
        (2**19, "snapshot_format: HDF5", ""),
    ],
)
def test_snapshots_beyond_the_limit_of_protobuf_are_refused_at_the_start(width: int, settings: str, kinds: str) -> None:
    """A weight of 1024 x 2**19 floats has exactly 2 GiB. It is never allocated."""
    graph = Net(LARGE % width, "TRAIN").graph
    error = catch(lambda: check_snapshot_files(read_solver(f"base_lr: 1 {settings}\n"), graph), SolverError)
    messages = [p.message for p in error.problems] if error else []
    assert [kind for kind in ("caffemodel", "solverstate") if any(kind in m for m in messages)] == kinds.split()
    assert len(messages) == len(kinds.split())
    assert all("(2 GiB)" in m and "snapshot_format: HDF5" in m for m in messages)


def test_a_file_beyond_the_limit_of_protobuf_is_refused_before_it_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    net = Net(NET, "TRAIN")
    params = net.init(jax.random.key(0)).params
    net.save(params, {}, "right.caffemodel")
    size = os.path.getsize("right.caffemodel")
    write_solverstate("right.solverstate", SolverState(1, "w", (np.zeros(100, np.float32),)))
    for write, expected in (
        (lambda path: net.save(params, {}, f"{path}.caffemodel"), size),
        (
            lambda path: write_solverstate(f"{path}.solverstate", SolverState(1, "w", (np.zeros(100, np.float32),))),
            os.path.getsize("right.solverstate"),
        ),
    ):
        write: Any
        monkeypatch.setattr(caffemodel, "MAX_MESSAGE_BYTES", expected)
        write("fits")
        monkeypatch.setattr(caffemodel, "MAX_MESSAGE_BYTES", expected - 20)  # the envelopes of layers are not counted
        with pytest.raises(CaffejaxError, match=r"beyond|protobuf.*\.h5"):
            write("large")
    assert not list(Path().glob("large*"))
