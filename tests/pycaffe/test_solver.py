"""Solvers: Caffe's interface, and trajectories recorded from Caffe."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import caffejax
import caffejax.pycaffe as caffe

from .conftest import DUMMY_DATA_NET, INPUT_NET, Write

GOLDEN = Path(__file__).parents[1] / "golden" / "solver"

SETTINGS = """
net: "{net}"
test_iter: 2 test_interval: 10
base_lr: 0.01 momentum: 0.9 weight_decay: 0.0005
lr_policy: "inv" gamma: 0.0001 power: 0.75
display: 100 max_iter: 4 snapshot_after_train: false
snapshot_prefix: "model"
"""


def write_solver(write: Write, net: str = DUMMY_DATA_NET, extra_settings: str = "", settings: str = SETTINGS) -> str:
    return write("solver.prototxt", settings.format(net=write("net.prototxt", net)) + extra_settings)


# DummyData draws nothing here: a step costs little to compile
DETERMINISTIC_NET = DUMMY_DATA_NET.replace('"gaussian" std: 1', '"xavier"').replace('"gaussian" std: 2.5', '"xavier"')


def test_solve_trains_to_max_iter(write: Write) -> None:
    solver = caffe.get_solver(write_solver(write, DETERMINISTIC_NET))
    assert type(solver) is caffe.SGDSolver
    assert (solver.iter, solver.max_iter, solver.type) == (0, 4, "SGD")
    assert solver.lr == pytest.approx(0.01)
    solver.solve()
    assert solver.iter == 4
    assert len(solver.test_nets) == 1
    assert solver.param.max_iter == 4


def test_net_memory_outlives_the_solver(write: Write) -> None:
    solver = caffe.SGDSolver(write_solver(write, DETERMINISTIC_NET))
    solver.step(1)
    nets = [solver.net, *solver.test_nets]
    del solver
    for net in nets:
        blobs = [*net.blobs.values(), *(b for blobs in net.params.values() for b in blobs)]
        assert np.isfinite(sum(b.data.sum() + b.diff.sum() for b in blobs))


@pytest.mark.parametrize("extra_settings", ["", "snapshot_format: HDF5"])
def test_snapshot_and_restore(write: Write, extra_settings: str) -> None:
    path = write_solver(write, DETERMINISTIC_NET, extra_settings)
    solver = caffe.SGDSolver(path)
    solver.step(2)
    solver.snapshot()
    suffix = ".h5" if extra_settings else ""
    assert Path(f"model_iter_2.caffemodel{suffix}").exists()
    solver.step(2)
    restored = caffe.get_solver(path)
    restored.restore(f"model_iter_2.solverstate{suffix}")
    assert restored.iter == 2
    restored.step(2)
    resumed = caffe.get_solver(path)
    resumed.solve(f"model_iter_2.solverstate{suffix}")
    assert resumed.iter == 4
    for name, blobs in solver.net.params.items():
        for a, b in zip(blobs, restored.net.params[name], strict=True):
            np.testing.assert_allclose(a.data, b.data, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("solver_type", "cls"),
    [
        ("SGD", caffe.SGDSolver),
        ("Nesterov", caffe.NesterovSolver),
        ("AdaGrad", caffe.AdaGradSolver),
        ("RMSProp", caffe.RMSPropSolver),
        ("AdaDelta", caffe.AdaDeltaSolver),
        ("Adam", caffe.AdamSolver),
    ],
)
def test_each_type_of_solver_is_a_class(solver_type: str, cls: Any, write: Write) -> None:
    settings = SETTINGS.replace("momentum: 0.9", "") + "rms_decay: 0.9\n"
    file = write_solver(write, DETERMINISTIC_NET, f'type: "{solver_type}"', settings)
    solver = caffe.get_solver(file)
    assert type(solver) is cls
    assert isinstance(solver, caffe.Solver)
    legacy = "ADAM" if solver_type == "Adam" else solver_type.upper()
    assert type(caffe.get_solver(write_solver(write, DETERMINISTIC_NET, f"solver_type: {legacy}", settings))) is cls
    assert (
        cls(write_solver(write, DETERMINISTIC_NET, settings=settings)).type == solver_type
    )  # the class counts, not the file's SGD


def test_order_of_callbacks(write: Write) -> None:
    solver = caffe.SGDSolver(write_solver(write, DETERMINISTIC_NET, "iter_size: 2"))
    events: list[Any] = []
    solver.net.before_forward(lambda i: events.append("forward") if i == 0 else None)
    solver.net.after_backward(lambda i: events.append("backward") if i == 0 else None)
    solver.add_callback(lambda: events.append(("start", solver.iter)), lambda: events.append("gradients"))
    solver.step(2)
    passes = ["forward", "backward"] * 2
    assert events == [("start", 0), *passes, "gradients", ("start", 1), *passes, "gradients"]


NORMALIZED_NET = """
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


@pytest.mark.parametrize("when", ["before_forward", "after_forward", "before_backward", "after_backward"])
def test_callbacks_of_the_net_do_not_change_training(when: str, write: Write) -> None:
    """Layers then run one by one: in-place layers must read their original bottoms, which later layers overwrote."""
    path = write_solver(write, NORMALIZED_NET, "iter_size: 2", SETTINGS.replace("test_iter: 2 test_interval: 10", ""))
    params_of_runs = []
    for has_callback in (False, True):
        caffe.set_random_seed(3)
        solver = caffe.SGDSolver(path)
        calls: list[int] = []
        if has_callback:
            getattr(solver.net, when)(calls.append)
        solver.step(5)
        assert len(calls) == has_callback * 5 * 2 * len(solver.net.layers)
        params_of_runs.append({name: [b.data.copy() for b in blobs] for name, blobs in solver.net.params.items()})
    for name, blobs in params_of_runs[0].items():
        for expected, actual in zip(blobs, params_of_runs[1][name], strict=True):
            np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-6, err_msg=name)


def test_callbacks_may_change_gradients_before_the_update(write: Write) -> None:
    settings = SETTINGS.replace("weight_decay: 0.0005", "").replace("momentum: 0.9", "")
    solver = caffe.SGDSolver(write_solver(write, DETERMINISTIC_NET, settings=settings))
    old_bias = solver.net.params["ip"][1].data.copy()

    def set_diff_to_one() -> None:
        solver.net.params["ip"][1].diff[...] = 1

    solver.add_callback(lambda: None, set_diff_to_one)
    solver.step(1)
    np.testing.assert_allclose(solver.net.params["ip"][1].data, old_bias - 0.01, rtol=1e-6)
    np.testing.assert_allclose(solver.net.params["ip"][1].diff, 0.01, rtol=1e-6)  # the update is what the diff is now


def test_params_written_between_steps_are_used(write: Write) -> None:
    solver = caffe.SGDSolver(write_solver(write, DETERMINISTIC_NET))
    solver.step(1)
    for blobs in solver.net.params.values():
        for blob in blobs:
            blob.data[...] = 0
    solver.step(1)
    assert solver.net.blobs["ip_blob"].data.shape == (5, 7)
    assert (solver.net.blobs["ip_blob"].data == 0).all()
    np.testing.assert_allclose(solver.net.blobs["loss"].data, np.log(7), rtol=1e-6)


def test_blobs_have_the_values_of_the_last_iteration(write: Write) -> None:
    """The blobs have the values before the update, although they are computed later."""
    solver = caffe.SGDSolver(write_solver(write, DETERMINISTIC_NET))
    w, b = (blob.data.copy() for blob in solver.net.params["ip"])
    solver.step(1)
    conv = solver.net.blobs["conv"].data.reshape(5, -1)
    np.testing.assert_allclose(solver.net.blobs["ip_blob"].data, conv @ w.T + b, rtol=1e-4, atol=1e-4)
    assert solver.net.blobs["ip_blob"].diff.any()


def test_a_manual_iteration_equals_a_step(write: Write) -> None:
    path = write_solver(write, INPUT_NET.replace("Dropout", "Power"), settings=SETTINGS.replace("test_iter: 2", ""))
    path = write("solver.prototxt", Path(path).read_text().replace("test_interval: 10", ""))
    a, b = caffe.SGDSolver(path), caffe.SGDSolver(path)
    for name, blobs in a.net.params.items():
        for first, second in zip(blobs, b.net.params[name], strict=True):
            second.data[...] = first.data
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
        for first, second in zip(blobs, b.net.params[name], strict=True):
            np.testing.assert_allclose(first.data, second.data, rtol=1e-5, atol=1e-7)
            np.testing.assert_allclose(first.diff, second.diff, rtol=1e-4, atol=1e-7)


def test_test_nets_have_the_trained_params(write: Write) -> None:
    net = DETERMINISTIC_NET + 'layer { name: "own" type: "InnerProduct" bottom: "ip_blob" top: "own" include { phase: TEST } inner_product_param { num_output: 2 weight_filler { type: "xavier" } } }'  # fmt: skip # noqa: E501
    solver = caffe.SGDSolver(write_solver(write, net))
    test = solver.test_nets[0]
    old_loss = float(test.forward()["loss"])
    solver.step(3)
    np.testing.assert_array_equal(test.params["ip"][0].data, solver.net.params["ip"][0].data)
    assert float(test.forward()["loss"]) < old_loss
    test.params["own"][0].data[...] = 0
    (scores,) = solver._trainer.test()
    assert (scores.outputs["own"] == 0).all()
    np.testing.assert_allclose(scores.outputs["loss"], test.blobs["loss"].data, rtol=1e-5)
    separate_net = caffe.Net(str(Path("net.prototxt")), caffe.TEST)
    solver.share_weights(separate_net)
    np.testing.assert_array_equal(separate_net.params["ip"][0].data, test.params["ip"][0].data)


def test_a_solvers_seed_determines_the_initial_params(write: Write) -> None:
    path = write_solver(write, DETERMINISTIC_NET, "random_seed: 4")
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


def test_training_equals_caffejax_solver(write: Write) -> None:
    """Both solvers give the same numbers from the same seed, with dropout."""
    net = DUMMY_DATA_NET.replace('layer { name: "loss"', 'layer { name: "drop" type: "Dropout" bottom: "ip_blob" top: "ip_blob" } layer { name: "loss"')  # fmt: skip # noqa: E501
    path = write_solver(write, net, "random_seed: 3 iter_size: 2")
    pycaffe_solver, solver = caffe.get_solver(path), caffejax.Solver(path)
    pycaffe_solver.step(3)
    solver.step(3)
    for param in solver.net.graph.unique_params:
        actual = pycaffe_solver.net.params[param.slot.layer][param.index].data
        np.testing.assert_allclose(actual, param.array(*solver.variables), rtol=2e-5, atol=1e-6)
    solver.close()


def test_a_net_without_params_can_be_trained(write: Write) -> None:
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
    net = write("net.prototxt", DUMMY_DATA_NET)
    solver = caffe.get_solver(
        write("s.prototxt", f'net: "{net}" base_lr: 0.01 lr_policy: "fixed" snapshot: 2 snapshot_prefix: "s"')
    )
    solver.step(2)
    assert sorted(p.name for p in Path().glob("s_iter_2.*")) == ["s_iter_2.caffemodel", "s_iter_2.solverstate"]
    assert [p.name for p in Path("s.orbax").iterdir() if p.name.isdigit()] == ["2"]
    loaded_net = caffe.Net(net, "s_iter_2.caffemodel", caffe.TEST)
    np.testing.assert_array_equal(loaded_net.params["ip"][0].data, solver.net.params["ip"][0].data)
