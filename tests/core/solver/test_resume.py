"""Snapshots: values are restored bit for bit, and invalid snapshots are rejected."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from caffejax.base.errors import CaffejaxError, DataError, SolverError, WeightsError
from caffejax.core.parallel.mesh import one_device_mesh
from caffejax.core.program.net import Net
from caffejax.core.schema import read_solver
from caffejax.core.solver import Solver, solverstate_io
from caffejax.core.solver.evaluate import Evaluator

NET = """
layer { name: "data" type: "DummyData" top: "data" top: "label"
  dummy_data_param { shape { dim: 4 dim: 6 } shape { dim: 4 }
    data_filler { type: "gaussian" } data_filler { type: "constant" value: 1 } } }
layer { name: "ip" type: "InnerProduct" bottom: "data" top: "ip"
  inner_product_param { num_output: 3 weight_filler { type: "xavier" } } }
layer { name: "drop" type: "Dropout" bottom: "ip" top: "ip" }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }
"""


def make_solver(folder: Path, settings: str = "", net: str = NET, type: str = "Adam") -> Solver:
    return Solver(
        f'net_param {{ {net} }} base_lr: 0.01 lr_policy: "fixed" momentum: 0.9 type: "{type}" random_seed: 3 '
        f'max_iter: 20 snapshot_prefix: "{folder / "snap"}" {settings}'
    )


def read_state_leaves(s: Solver) -> list[np.ndarray]:
    state = s.train_state.replace(key=jax.random.key_data(s.train_state.key))
    return [np.asarray(leaf) for leaf in jax.tree.leaves(state)]


@pytest.mark.parametrize(
    "snapshot", ["snap.orbax", "snap.orbax/5", "snap_iter_5.solverstate", "snap_iter_5.solverstate.h5"]
)
@pytest.mark.parametrize(("type", "settings"), [("SGD", ""), ("SGD", "iter_size: 3"), ("Adam", ""), ("AdaDelta", "")])
def test_resumes_bit_for_bit_from_a_checkpoint(tmp_path: Path, type: str, settings: str, snapshot: str) -> None:
    """Each kind of snapshot restores weights, history, random keys and iteration."""
    if snapshot.endswith(".h5"):
        settings += " snapshot_format: HDF5"
    uninterrupted = make_solver(tmp_path, settings, type=type)
    uninterrupted.step(5)
    uninterrupted.snapshot()
    uninterrupted.step(5)
    resumed = make_solver(tmp_path, settings, type=type)
    resumed.restore(tmp_path / snapshot)
    assert resumed.iteration == 5
    resumed.step(5)
    for actual, expected in zip(read_state_leaves(resumed), read_state_leaves(uninterrupted), strict=True):
        np.testing.assert_array_equal(actual, expected)


DIGITS = Path(__file__).parents[3] / "configs" / "digits"


@pytest.mark.parametrize("snapshot", ["x.orbax", "x_iter_7.solverstate", "x_iter_7.solverstate.h5"])
def test_the_digits_job_resumes_bit_for_bit(tmp_path: Path, snapshot: str) -> None:
    """Each kind of snapshot stores the position in the training data and in the test data."""

    def make_solver() -> Solver:
        param = read_solver(DIGITS / "lenet_solver.prototxt")
        param.snapshot_prefix = str(tmp_path / "x")
        param.test_iter[0] = 1  # not a whole pass, so that the place matters
        if snapshot.endswith(".h5"):
            param.snapshot_format = param.HDF5
        return Solver(param, file=DIGITS / "lenet_solver.prototxt")

    uninterrupted, resumed = make_solver(), make_solver()
    uninterrupted.step(7)
    uninterrupted.test()
    uninterrupted.snapshot()
    uninterrupted.step(4)
    resumed.restore(tmp_path / snapshot)
    resumed.step(4)
    for actual, expected in zip(read_state_leaves(resumed), read_state_leaves(uninterrupted), strict=True):
        np.testing.assert_array_equal(actual, expected)
    assert resumed.test()[0].outputs == uninterrupted.test()[0].outputs
    for s in (uninterrupted, resumed):
        s.close()


ORBAX_ALONE = """
import json, sys
import numpy as np
import orbax.checkpoint as ocp

with ocp.CheckpointManager(sys.argv[1]) as manager:
    args = ocp.args.Composite(arrays=ocp.args.StandardRestore(), record=ocp.args.JsonRestore())
    items = manager.restore(manager.latest_step(), args=args)
np.savez("read.npz", **{"/".join(path): x for path, x in ocp.utils.to_flat_dict(items["arrays"]).items()})
print(json.dumps([manager.all_steps(), items["record"]["record"]["type"]]))
assert not any("caffe" in name for name in sys.modules)
"""


def test_a_checkpoint_is_readable_with_orbax_alone(tmp_path: Path) -> None:
    """By another process, without a template, which cannot import caffejax."""
    s = make_solver(tmp_path)
    for _ in range(2):
        s.step(1)
        s.snapshot()
    s.close()
    command = [sys.executable, "-c", ORBAX_ALONE, str(tmp_path / "snap.orbax")]
    result = subprocess.run(
        command, cwd=tmp_path, env=os.environ | {"PYTHONPATH": ""}, capture_output=True, text=True, check=True
    )
    assert json.loads(result.stdout) == [[1, 2], "Adam"]
    arrays = np.load(tmp_path / "read.npz")
    np.testing.assert_array_equal(arrays["params/ip/weight"], s.train_state.params["ip"]["weight"])
    np.testing.assert_array_equal(arrays["history/1/ip/weight"], s.train_state.opt_state.history[1]["ip"]["weight"])
    assert arrays["iteration"] == 2


def test_another_net_is_refused_by_name_and_shape(tmp_path: Path) -> None:
    s = make_solver(tmp_path)
    s.snapshot()
    s.close()
    other_solver = make_solver(tmp_path, net=NET.replace("num_output: 3", "num_output: 4"))
    with pytest.raises(WeightsError, match=r"'params/ip/weight' has shape \(3, 6\), but this solver needs \(4, 6\)"):
        other_solver.restore(tmp_path / "snap.orbax")


@pytest.mark.parametrize("snapshot", ["snap.orbax", "snap_iter_0.solverstate"])
def test_layers_of_another_net_are_named_once(tmp_path: Path, snapshot: str) -> None:
    s = make_solver(tmp_path)
    s.snapshot()
    s.close()
    other_solver = make_solver(tmp_path, net=NET.replace('"ip"', '"ip_new"'))
    with pytest.raises(WeightsError) as exc_info:
        other_solver.restore(tmp_path / snapshot)
    (problem,) = exc_info.value.problems
    differences = "layer 'ip_new' is missing in it, and its layer 'ip' is not in this net"
    weights = "it" if snapshot.endswith(".orbax") else f"{tmp_path}/snap_iter_0.caffemodel"
    advice = f"to fine-tune, pass {weights} as --weights instead of --snapshot"
    assert problem.message == f"this is a snapshot of another net: {differences}; {advice}"
    assert problem.file == str(tmp_path / snapshot)


def test_a_solver_state_whose_weights_lack_a_layer_is_refused(tmp_path: Path) -> None:
    extra_layers = (
        'layer { name: "b" type: "InnerProduct" bottom: "ip" top: "b" inner_product_param { num_output: 2 } }'
    )
    s = make_solver(tmp_path)
    s.snapshot()
    s.close()
    with pytest.raises(WeightsError, match=r"another net: layer 'b' is missing in it; to fine-tune") as exc_info:
        make_solver(tmp_path, net=NET + extra_layers).restore(tmp_path / "snap_iter_0.solverstate")
    assert "strict_weights" not in str(exc_info.value)


def test_a_checkpoint_with_more_layers_is_of_another_net(tmp_path: Path) -> None:
    extra_layers = (
        'layer {{ name: "{0}" type: "InnerProduct" bottom: "ip" top: "{0}" inner_product_param {{ num_output: 2 }} }}'
    )
    s = make_solver(tmp_path, net=NET + extra_layers.format("a/1") + extra_layers.format("b"))
    s.snapshot()
    s.close()
    with pytest.raises(WeightsError, match=r"another net: its layers 'a/1', 'b' are not in this net; to fine-tune"):
        make_solver(tmp_path).restore(tmp_path / "snap.orbax")


@pytest.mark.parametrize("name", ["", "/7", "/0"])
def test_missing_and_damaged_snapshots_are_refused(tmp_path: Path, name: str) -> None:
    s = make_solver(tmp_path)
    if name:
        s.snapshot()
        s.step(1)
        s.snapshot()
        s.close()
        for file in (tmp_path / "snap.orbax" / "0").rglob("*"):
            if file.is_file() and file.parent.name == "d":
                file.write_bytes(file.read_bytes()[:10])
    leaves_before = read_state_leaves(s)
    with pytest.raises(WeightsError, match=r"snap\.orbax") as exc_info:
        s.restore(f"{tmp_path}/snap.orbax{name}")
    if name == "/0":
        assert "step 1 is the newest good one" in str(exc_info.value)
    for actual, expected in zip(read_state_leaves(s), leaves_before, strict=True):
        np.testing.assert_array_equal(actual, expected)


def test_a_prefix_that_cannot_be_written_is_refused_at_the_start(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(SolverError, match="snapshot prefix"):
        make_solver(tmp_path / "file", "snapshot: 5")


def test_fine_tuning_loads_layers_by_name(tmp_path: Path) -> None:
    s = make_solver(tmp_path)
    s.step(1)
    s.snapshot()
    s.close()
    weights = tmp_path / "snap_iter_1.caffemodel"
    new_head = NET.replace('"ip"', '"other"')
    text = f'net_param {{ {NET} }} base_lr: 0.1 lr_policy: "fixed"'
    tuned_solver = Solver(text, weights=[weights])
    np.testing.assert_array_equal(tuned_solver.train_state.params["ip"]["weight"], s.train_state.params["ip"]["weight"])
    with pytest.raises(WeightsError, match=r"has no blobs for any layer of the net.*\(other\).*\(ip\)"):
        Solver(text.replace(NET, new_head), weights=[weights])
    with pytest.raises(CaffejaxError, match=r"ip.*rename the layer"):
        Solver(text.replace("num_output: 3", "num_output: 5"), weights=[weights])


def test_a_file_in_place_of_the_checkpoint_folder_is_reported(tmp_path: Path) -> None:
    (tmp_path / "snap.orbax").write_text("a file where the checkpoints go")
    s = make_solver(tmp_path)
    s.step(1)
    with pytest.raises(WeightsError, match=r"snap\.orbax"):
        s.snapshot()
    s.snapshot(wait=False)
    with pytest.raises(WeightsError, match=r"snap\.orbax"):  # training hears of it too
        s.step(1_000_000)
    assert s.iteration < 1_000_000
    assert (tmp_path / "snap.orbax").read_text() == "a file where the checkpoints go"


def test_steps_of_an_earlier_run_are_moved(tmp_path: Path) -> None:
    """With the same prefix, the steps of the latest run are kept, and one old step for each iteration."""
    first_solver = make_solver(tmp_path, "snapshot: 4")
    first_solver.step(12)
    first_solver.close()
    for length in 8, 4, 8:
        second_solver = make_solver(tmp_path, "snapshot: 4")
        second_solver.step(length)
        second_solver.close()
    steps = {p.parent.name: sorted(int(q.name) for q in p.parent.iterdir() if q.name.isdigit())
             for p in tmp_path.glob("snap.orbax*/*")}  # fmt: skip
    assert steps == {"snap.orbax": [4, 8], "snap.orbax.old": [4, 8, 12]}
    resumed = make_solver(tmp_path)
    for folder, newest in ("snap.orbax", 8), ("snap.orbax.old", 12):
        resumed.restore(tmp_path / folder)
        assert resumed.iteration == newest


@pytest.mark.parametrize("changes_params", [False, True])
def test_stopping_before_an_update_keeps_the_existing_snapshot(tmp_path: Path, changes_params: bool) -> None:
    def stop_at_once(*resume: Path) -> Solver:
        s = make_solver(tmp_path, "test_iter: 2 test_interval: 4")
        for path in resume:
            s.restore(path)
        if changes_params:
            s.train_state = s.train_state.replace(params=jax.tree.map(lambda w: w + 1, s.train_state.params))
        s.request("stop")
        s.step(4)  # of which the first begins with a test
        s.close()
        return s

    first_solver = stop_at_once()
    second_solver = stop_at_once(tmp_path / "snap.orbax")
    assert second_solver.iteration == 0
    assert (tmp_path / "snap.orbax.old" / "0").exists() == changes_params
    assert [p.name for p in (tmp_path / "snap.orbax").iterdir() if p.name.isdigit()] == ["0"]
    assert (read_state_leaves(first_solver)[0] == read_state_leaves(second_solver)[0]).all() == (not changes_params)


def test_a_later_request_does_not_cancel_a_stop(tmp_path: Path) -> None:
    s = make_solver(tmp_path)
    s.callbacks.append(lambda s: [s.request("stop"), s.request("snapshot")] if s.iteration == 3 else None)
    s.solve()
    assert s.iteration == 3
    assert (tmp_path / "snap_iter_3.caffemodel").exists()


RECURRENT = """
layer { name: "x" type: "DummyData" top: "x" top: "cont" dummy_data_param { shape { dim: 3 dim: 2 dim: 4 }
  shape { dim: 3 dim: 2 } data_filler { type: "constant" value: 1 } data_filler { type: "constant" value: 1 } } }
layer { name: "lstm" type: "LSTM" bottom: "x" bottom: "cont" top: "lstm"
  recurrent_param { num_output: 5 weight_filler { type: "xavier" } } }
layer { name: "loss" type: "Reduction" bottom: "lstm" top: "loss" loss_weight: 1 }
"""


@pytest.mark.parametrize("snapshot", ["x.orbax/2", "x_iter_2.solverstate"])
def test_recurrent_state_of_a_test_net_is_restored(tmp_path: Path, snapshot: str) -> None:
    def make_solver() -> Solver:
        return Solver(
            f'net_param {{ {RECURRENT} }} base_lr: 0.01 lr_policy: "fixed" random_seed: 2 test_iter: 2 '
            f'test_interval: 100 test_initialization: false snapshot_prefix: "{tmp_path / "x"}"',
        )

    uninterrupted, resumed = make_solver(), make_solver()
    uninterrupted.step(2)
    (scores_before,) = uninterrupted.test()
    uninterrupted.snapshot()
    (expected,) = uninterrupted.test()
    assert expected.loss != scores_before.loss  # what is carried counts
    resumed.restore(tmp_path / snapshot)
    assert resumed.test()[0].loss == expected.loss
    uninterrupted.restore(tmp_path / snapshot)
    assert uninterrupted.test()[0].loss == expected.loss


@pytest.mark.parametrize("snapshot", ["snap.orbax/5", "snap_iter_5.solverstate", "snap_iter_5.solverstate.h5"])
@pytest.mark.parametrize("largest", [2**20, 0])
def test_recurrent_state_of_the_train_net_is_restored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, largest: int, snapshot: str
) -> None:
    monkeypatch.setattr(solverstate_io, "_MAX_CARRIED_NUMBERS", largest)
    settings = "snapshot_format: HDF5" if snapshot.endswith(".h5") else ""
    uninterrupted, resumed = (make_solver(tmp_path, settings, net=RECURRENT) for _ in range(2))
    uninterrupted.step(5)
    uninterrupted.snapshot()
    uninterrupted.step(2)
    resumed.restore(tmp_path / snapshot)
    resumed.step(2)
    leaves = zip(read_state_leaves(resumed), read_state_leaves(uninterrupted), strict=True)
    is_complete = largest > 0 or "orbax" in snapshot
    assert all(np.array_equal(actual, expected) for actual, expected in leaves) == is_complete
    assert ("too large (layer 'lstm')" in caplog.text) == (largest == 0)


@pytest.mark.parametrize("damage", [3, [3], [{"shape": [2], "float32": "AAAA"}], [{"shape": [-1], "float32": ""}]])
def test_damaged_recurrent_state_in_a_snapshot_is_refused(damage: Any) -> None:
    net = Net(RECURRENT)
    evaluator = Evaluator(net, one_device_mesh(jax.devices()[0]))
    with pytest.raises(DataError, match=r"layer 'lstm' .*its recurrent state is damaged in the snapshot"):
        evaluator.set_state({"lstm": {"carried": damage}})


def test_auto_resumes_from_the_newest_checkpoint_or_starts_at_0(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "caffejax")
    (tmp_path / "snap.orbax").mkdir()  # a first snapshot that was killed leaves an empty folder
    for max_iter, start in ((3, None), (5, 3)):
        s = make_solver(tmp_path, "snapshot: 2")
        s.param.max_iter = max_iter
        s.solve("auto")
        s.close()
        folder = tmp_path / "snap.orbax"
        line = f"No checkpoint in {folder}; training starts at iteration 0"
        assert (line if start is None else f"Restored iteration {start} from {folder}") in caplog.messages
        caplog.clear()
    for file in (tmp_path / "snap.orbax" / "5").rglob("*"):
        if file.is_file() and file.parent.name == "d":
            file.write_bytes(file.read_bytes()[:10])
    with pytest.raises(WeightsError, match=r"step 4 is the newest good one; step 5 is damaged: "):
        make_solver(tmp_path).solve("auto")


def test_iteration_and_rate_follow_an_assigned_train_state(tmp_path: Path) -> None:
    def make_step_solver() -> Solver:
        net = NET.replace('type: "gaussian"', 'type: "constant" value: 0.5')  # the same data at each position
        return Solver(
            f'net_param {{ {net} }} base_lr: 0.1 lr_policy: "step" stepsize: 3 gamma: 0.1 momentum: 0.9 max_iter: 20 '
            f'random_seed: 3 snapshot_prefix: "{tmp_path / "snap"}"'
        )

    first, second, changed = make_step_solver(), make_step_solver(), make_step_solver()
    first.step(2)
    second.train_state = jax.tree.map(jax.numpy.copy, first.train_state)
    assert second.iteration == 2
    # a callback comes between the update and the count of it
    changed.callbacks.append(lambda s: setattr(s, "train_state", s.train_state.replace(params=s.train_state.params)))
    changed.step(6)
    for solver in (first, second):
        solver.step(4)
        assert (solver.iteration, solver.rate) == (6, pytest.approx(0.001))
        for actual, expected in zip(read_state_leaves(solver), read_state_leaves(changed), strict=True):
            np.testing.assert_array_equal(actual, expected)
    second.snapshot()
    assert (tmp_path / "snap.orbax" / "6").is_dir()
