"""Solvers: what Caffe's interface promises of them, and Caffe's own trajectories."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import caffejax
import caffejax.pycaffe as caffe

from .conftest import FED, SMALL, Write

GOLDEN = Path(__file__).parents[1] / "golden" / "solver"

SETTINGS = """
net: "{net}"
test_iter: 2 test_interval: 10
base_lr: 0.01 momentum: 0.9 weight_decay: 0.0005
lr_policy: "inv" gamma: 0.0001 power: 0.75
display: 100 max_iter: 4 snapshot_after_train: false
snapshot_prefix: "model"
"""


def solver_of(write: Write, net: str = SMALL, extra_settings: str = "", settings: str = SETTINGS) -> str:
    return write("solver.prototxt", settings.format(net=write("net.prototxt", net)) + extra_settings)


# DummyData draws nothing here: a step costs little to compile
PLAIN = SMALL.replace('"gaussian" std: 1', '"xavier"').replace('"gaussian" std: 2.5', '"xavier"')


def test_solve_trains_to_max_iter(write: Write) -> None:
    solver = caffe.get_solver(solver_of(write, PLAIN))
    assert type(solver) is caffe.SGDSolver
    assert (solver.iter, solver.max_iter, solver.type) == (0, 4, "SGD")
    assert solver.lr == pytest.approx(0.01)
    solver.solve()
    assert solver.iter == 4
    assert len(solver.test_nets) == 1
    assert solver.param.max_iter == 4


def test_net_memory_outlives_the_solver(write: Write) -> None:
    solver = caffe.SGDSolver(solver_of(write, PLAIN))
    solver.step(1)
    nets = [solver.net, *solver.test_nets]
    del solver
    for net in nets:
        blobs = [*net.blobs.values(), *(b for blobs in net.params.values() for b in blobs)]
        assert np.isfinite(sum(b.data.sum() + b.diff.sum() for b in blobs))


@pytest.mark.parametrize("extra_settings", ["", "snapshot_format: HDF5"])
def test_snapshot_and_restore(write: Write, extra_settings: str) -> None:
    path = solver_of(write, PLAIN, extra_settings)
    solver = caffe.SGDSolver(path)
    solver.step(2)
    solver.snapshot()
    end = ".h5" if extra_settings else ""
    assert Path(f"model_iter_2.caffemodel{end}").exists()
    solver.step(2)
    again = caffe.get_solver(path)
    again.restore(f"model_iter_2.solverstate{end}")
    assert again.iter == 2
    again.step(2)
    resumed = caffe.get_solver(path)
    resumed.solve(f"model_iter_2.solverstate{end}")
    assert resumed.iter == 4
    for name, blobs in solver.net.params.items():
        for a, b in zip(blobs, again.net.params[name], strict=True):
            np.testing.assert_allclose(a.data, b.data, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("kind", "cls"),
    [
        ("SGD", caffe.SGDSolver),
        ("Nesterov", caffe.NesterovSolver),
        ("AdaGrad", caffe.AdaGradSolver),
        ("RMSProp", caffe.RMSPropSolver),
        ("AdaDelta", caffe.AdaDeltaSolver),
        ("Adam", caffe.AdamSolver),
    ],
)
def test_each_type_of_solver_is_a_class(kind: str, cls: Any, write: Write) -> None:
    settings = SETTINGS.replace("momentum: 0.9", "") + "rms_decay: 0.9\n"
    file = solver_of(write, PLAIN, f'type: "{kind}"', settings)
    solver = caffe.get_solver(file)
    assert type(solver) is cls
    assert isinstance(solver, caffe.Solver)
    legacy = "ADAM" if kind == "Adam" else kind.upper()
    assert type(caffe.get_solver(solver_of(write, PLAIN, f"solver_type: {legacy}", settings))) is cls
    assert cls(solver_of(write, PLAIN, settings=settings)).type == kind  # the class counts, not the file's SGD


def test_order_of_callbacks(write: Write) -> None:
    solver = caffe.SGDSolver(solver_of(write, PLAIN, "iter_size: 2"))
    events: list[Any] = []
    solver.net.before_forward(lambda i: events.append("forward") if i == 0 else None)
    solver.net.after_backward(lambda i: events.append("backward") if i == 0 else None)
    solver.add_callback(lambda: events.append(("start", solver.iter)), lambda: events.append("gradients"))
    solver.step(2)
    passes = ["forward", "backward"] * 2
    assert events == [("start", 0), *passes, "gradients", ("start", 1), *passes, "gradients"]


NORMALISED = """
layer { name: "data" type: "DummyData" top: "data" top: "target"
  dummy_data_param { shape { dim: 4 dim: 2 dim: 6 dim: 6 } shape { dim: 4 dim: 3 dim: 4 dim: 4 }
    data_filler { type: "gaussian" std: 1 } data_filler { type: "constant" value: 0.5 } } }
layer { name: "conv" type: "Convolution" bottom: "data" top: "conv"
  convolution_param { num_output: 3 kernel_size: 3 bias_term: false weight_filler { type: "xavier" } } }
layer { name: "bn" type: "BatchNorm" bottom: "conv" top: "conv" }
layer { name: "scale" type: "Scale" bottom: "conv" top: "conv"
  scale_param { bias_term: true filler { value: 0.5 } bias_filler { value: 0.3 } } }
layer { name: "relu" type: "ReLU" bottom: "conv" top: "conv" }
layer { name: "loss" type: "EuclideanLoss" bottom: "conv" bottom: "target" top: "loss" }
"""


@pytest.mark.slow
@pytest.mark.parametrize("when", ["before_forward", "after_forward", "before_backward", "after_backward"])
def test_callbacks_of_the_net_change_nothing_in_training(when: str, write: Write) -> None:
    """Layers then run one by one: those in place must find what they read, though later ones wrote over it."""
    path = solver_of(write, NORMALISED, "iter_size: 2", SETTINGS.replace("test_iter: 2 test_interval: 10", ""))
    trained = []
    for has_callback in (False, True):
        caffe.set_random_seed(3)
        solver = caffe.SGDSolver(path)
        calls: list[int] = []
        if has_callback:
            getattr(solver.net, when)(calls.append)
        solver.step(5)
        assert len(calls) == has_callback * 5 * 2 * len(solver.net.layers)
        trained.append({name: [b.data.copy() for b in blobs] for name, blobs in solver.net.params.items()})
    for name, blobs in trained[0].items():
        for plain, with_callback in zip(blobs, trained[1][name], strict=True):
            np.testing.assert_allclose(with_callback, plain, rtol=1e-4, atol=1e-6, err_msg=name)


def test_gradients_may_be_changed_before_the_update(write: Write) -> None:
    settings = SETTINGS.replace("weight_decay: 0.0005", "").replace("momentum: 0.9", "")
    solver = caffe.SGDSolver(solver_of(write, PLAIN, settings=settings))
    before = solver.net.params["ip"][1].data.copy()

    def ones() -> None:
        solver.net.params["ip"][1].diff[...] = 1

    solver.add_callback(lambda: None, ones)
    solver.step(1)
    np.testing.assert_allclose(solver.net.params["ip"][1].data, before - 0.01, rtol=1e-6)
    np.testing.assert_allclose(solver.net.params["ip"][1].diff, 0.01, rtol=1e-6)  # the update is what the diff is now


def test_params_written_between_steps_count(write: Write) -> None:
    solver = caffe.SGDSolver(solver_of(write, PLAIN))
    solver.step(1)
    for blobs in solver.net.params.values():
        for blob in blobs:
            blob.data[...] = 0
    solver.step(1)
    assert solver.net.blobs["ip_blob"].data.shape == (5, 7)
    assert (solver.net.blobs["ip_blob"].data == 0).all()
    np.testing.assert_allclose(solver.net.blobs["loss"].data, np.log(7), rtol=1e-6)


def test_blobs_of_the_last_iteration(write: Write) -> None:
    """The values before the update, although they are computed later."""
    solver = caffe.SGDSolver(solver_of(write, PLAIN))
    w, b = (blob.data.copy() for blob in solver.net.params["ip"])
    solver.step(1)
    conv = solver.net.blobs["conv"].data.reshape(5, -1)
    np.testing.assert_allclose(solver.net.blobs["ip_blob"].data, conv @ w.T + b, rtol=1e-4, atol=1e-4)
    assert solver.net.blobs["ip_blob"].diff.any()


def test_own_loop_is_a_step(write: Write) -> None:
    path = solver_of(write, FED.replace("Dropout", "Power"), settings=SETTINGS.replace("test_iter: 2", ""))
    path = write("solver.prototxt", Path(path).read_text().replace("test_interval: 10", ""))
    a, b = caffe.SGDSolver(path), caffe.SGDSolver(path)
    for name, blobs in a.net.params.items():
        for mine, other in zip(blobs, b.net.params[name], strict=True):
            other.data[...] = mine.data
    r = np.random.default_rng(0)
    for i in range(3):
        x, y = r.normal(size=(4, 2, 6, 6)), r.integers(0, 5, 4)
        for net in (a.net, b.net):
            net.blobs["data"].data[...] = x
            net.blobs["label"].data[...] = y
        a.step(1)  # uses what stands in the Input layers' blobs
        b.net.clear_param_diffs()
        b.net.forward()
        b.net.backward()
        b.apply_update()
        assert a.iter == b.iter == i + 1
    for name, blobs in a.net.params.items():
        for mine, other in zip(blobs, b.net.params[name], strict=True):
            np.testing.assert_allclose(mine.data, other.data, rtol=1e-5, atol=1e-7)
            np.testing.assert_allclose(mine.diff, other.diff, rtol=1e-4, atol=1e-7)


def test_test_nets_have_the_trained_params(write: Write) -> None:
    net = PLAIN + 'layer { name: "own" type: "InnerProduct" bottom: "ip_blob" top: "own" include { phase: TEST } inner_product_param { num_output: 2 weight_filler { type: "xavier" } } }'  # fmt: skip # noqa: E501
    solver = caffe.SGDSolver(solver_of(write, net))
    test = solver.test_nets[0]
    before = float(test.forward()["loss"])
    solver.step(3)
    np.testing.assert_array_equal(test.params["ip"][0].data, solver.net.params["ip"][0].data)
    assert float(test.forward()["loss"]) < before
    test.params["own"][0].data[...] = 0
    (scores,) = solver._trainer.test()
    assert (scores.outputs["own"] == 0).all()
    np.testing.assert_allclose(scores.outputs["loss"], test.blobs["loss"].data, rtol=1e-5)
    other = caffe.Net(str(Path("net.prototxt")), caffe.TEST)
    solver.share_weights(other)
    np.testing.assert_array_equal(other.params["ip"][0].data, test.params["ip"][0].data)


def test_a_solvers_seed_fixes_its_net(write: Write) -> None:
    path = solver_of(write, PLAIN, "random_seed: 4")
    first, second = (caffe.SGDSolver(path).net.params["ip"][0].data for _ in range(2))
    np.testing.assert_array_equal(first, second)


CASES = ["sgd_batchnorm_test", "sgd_shared_params", "adam_batchnorm_iter_size3"]


@pytest.mark.parametrize("case", CASES)
def test_solvers_equal_recorded_iterations(case: str) -> None:
    expected = dict(np.load(GOLDEN / case / "expected.npz"))
    solver = caffe.get_solver(str(GOLDEN / case / "solver.prototxt"))
    solver.net.copy_from(str(GOLDEN / case / "init.caffemodel"))
    for k in range(24):
        assert solver.lr == pytest.approx(expected["lr"][k], rel=3e-7)
        solver.step(1)
        for name in (n for n in expected if n.startswith(f"param/{k + 1}/")):
            _, _, layer, index = name.split("/")
            result, recorded = solver.net.params[layer][int(index)].data, expected[name]
            np.testing.assert_allclose(result, recorded, rtol=5e-5, atol=5e-5 * np.abs(recorded).max(), err_msg=name)


@pytest.mark.slow
def test_equal_to_the_solver_without_the_interface(write: Write) -> None:
    """The same numbers from the same seed, dropout included."""
    net = SMALL.replace('layer { name: "loss"', 'layer { name: "drop" type: "Dropout" bottom: "ip_blob" top: "ip_blob" } layer { name: "loss"')  # fmt: skip # noqa: E501
    path = solver_of(write, net, "random_seed: 3 iter_size: 2")
    ours, pure = caffe.get_solver(path), caffejax.Solver(path)
    ours.step(3)
    pure.step(3)
    for name, blobs in pure.train_state.params.items():
        for mine, other in zip(ours.net.params[name], blobs.values(), strict=True):
            np.testing.assert_allclose(mine.data, other, rtol=2e-5, atol=1e-6)
    pure.close()


def test_a_net_without_params_is_stepped_too(write: Write) -> None:
    net = write(
        "net.prototxt",
        """
        layer { name: "x" type: "DummyData" top: "x" dummy_data_param { shape { dim: 2 dim: 3 } } }
        layer { name: "y" type: "DummyData" top: "y" dummy_data_param { shape { dim: 2 dim: 3 } } }
        layer { name: "loss" type: "EuclideanLoss" bottom: "x" bottom: "y" top: "loss" }
        """,
    )
    solver = caffe.get_solver(
        write("solver.prototxt", f'net: "{net}" base_lr: 1 lr_policy: "fixed" momentum: 0.9 snapshot_prefix: "x"')
    )
    solver.step(2)
    solver.step(-1)  # does nothing, as in Caffe
    assert solver.iter == 2
    assert solver.net.blobs["loss"].data == 0


def test_snapshots_are_complete_when_step_returns(write: Write) -> None:
    net = write("net.prototxt", SMALL)
    solver = caffe.get_solver(
        write("s.prototxt", f'net: "{net}" base_lr: 0.01 lr_policy: "fixed" snapshot: 2 snapshot_prefix: "s"')
    )
    solver.step(2)
    assert sorted(p.name for p in Path().glob("s_iter_2.*")) == ["s_iter_2.caffemodel", "s_iter_2.solverstate"]
    assert [p.name for p in Path("s.orbax").iterdir() if p.name.isdigit()] == ["2"]
    loaded_net = caffe.Net(net, "s_iter_2.caffemodel", caffe.TEST)
    np.testing.assert_array_equal(loaded_net.params["ip"][0].data, solver.net.params["ip"][0].data)
