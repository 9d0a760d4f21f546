"""Steps of small nets in one call: chosen by net, solver and platform, with the bits of single steps."""

import logging
import re
from pathlib import Path
from typing import Any

import h5py
import jax
import numpy as np
import optax
import pytest

from caffejax.base.errors import DataError, SolverError
from caffejax.core.program.net import Net
from caffejax.core.solver import Callback, Solver
from caffejax.core.solver.joint_steps import MAX_STEPS, is_small

LAYERS = {
    "Deconvolution": """
layer { name: "deconv" type: "Deconvolution" bottom: "data" top: "x"
  convolution_param { num_output: 3 kernel_size: 3 stride: 2 weight_filler { type: "xavier" } } }""",
    "Convolution": """
layer { name: "conv" type: "Convolution" bottom: "data" top: "conv"
  convolution_param { num_output: 4 kernel_size: 3 weight_filler { type: "xavier" } } }
layer { name: "bn" type: "BatchNorm" bottom: "conv" top: "conv" }
layer { name: "scale" type: "Scale" bottom: "conv" top: "conv" scale_param { bias_term: true } }
layer { name: "pool" type: "Pooling" bottom: "conv" top: "x" pooling_param { kernel_size: 2 stride: 2 } }
layer { name: "drop" type: "Dropout" bottom: "x" top: "x" }""",
    "InnerProduct": """
layer { name: "ip1" type: "InnerProduct" bottom: "data" top: "x"
  inner_product_param { num_output: 9 weight_filler { type: "gaussian" std: 0.1 } } }
layer { name: "tanh" type: "TanH" bottom: "x" top: "x" }""",
}
END = """
layer { name: "ip" type: "InnerProduct" bottom: "x" top: "ip"
  inner_product_param { num_output: 3 weight_filler { type: "xavier" } } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }
"""


def write_data(folder: Path, bad_batch: int | None = None) -> str:
    """Write 60 batches of 4 images, and return their layer; the labels of one batch may be wrong."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, 240).astype(np.float32)
    if bad_batch is not None:
        labels[4 * bad_batch] = 7
    folder.mkdir(exist_ok=True)
    with h5py.File(folder / "data.h5", "w") as file:
        file["data"], file["label"] = rng.normal(size=(240, 2, 6, 6)).astype(np.float32), labels
    (folder / "data.txt").write_text(f"{folder / 'data.h5'}\n")
    return f"""layer {{ name: "data" type: "HDF5Data" top: "data" top: "label"
        hdf5_data_param {{ source: "{folder / "data.txt"}" batch_size: 4 }} }}"""


def make_solver(folder: Path, net: str = LAYERS["InnerProduct"], settings: str = "", **options: Any) -> Solver:
    data = options.pop("layer", None) or write_data(folder)
    text = f"""net_param {{ {data} {net} {END} }} base_lr: 0.05 lr_policy: "step" stepsize: 9 gamma: 0.7 momentum: 0.9
        random_seed: 3 max_iter: 90 snapshot_prefix: "{folder / "snap"}" {settings}"""
    return Solver(text, **options)


def read_arrays(solver: Solver) -> list[np.ndarray]:
    state = solver.train_state.replace(key=jax.random.key_data(solver.train_state.key))
    return [np.array(leaf) for leaf in jax.tree.leaves(state) if not isinstance(leaf, str)]


def assert_same(solvers: list[Solver]) -> None:
    first, *others = map(read_arrays, solvers)
    for arrays in others:
        for a, b in zip(first, arrays, strict=True):
            np.testing.assert_array_equal(a, b)
    assert len({str(solver.loader.get_state()) for solver in solvers}) == 1


@pytest.mark.parametrize("layers", LAYERS)
@pytest.mark.parametrize("settings", ["", 'type: "Adam" momentum2: 0.99 iter_size: 2 clip_gradients: 0.5'])
def test_bits_do_not_depend_on_which_iterations_are_together(layers: str, settings: str, tmp_path: Path) -> None:
    solvers = [make_solver(tmp_path, LAYERS[layers], f"{settings} {also}") for also in ("", "display: 4", "")]
    solvers[0].step(73)
    for n in (1, 5, 60, 7):
        solvers[1].step(n)
    solvers[2].callbacks.append(lambda solver: None)  # which wants to see each iteration
    solvers[2].step(20)
    solvers[2].snapshot()
    solvers.append(make_solver(tmp_path, LAYERS[layers], settings, resume=tmp_path / "snap.orbax" / "20"))
    for solver in solvers[2:]:
        solver.step(53)
    assert_same(solvers)
    plain = make_solver(tmp_path, LAYERS[layers], settings, steps_per_dispatch=1)
    plain.step(73)
    for a, b in zip(read_arrays(solvers[0]), read_arrays(plain), strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-3, atol=2e-5)


def test_the_log_is_that_of_single_steps(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    logs = []
    for name in ("together", "watched", "plain"):
        caplog.clear()
        options = {"steps_per_dispatch": 1} if name == "plain" else {}
        settings = "display: 7 snapshot: 30 average_loss: 5 clip_gradients: 0.9"
        with caplog.at_level(logging.INFO, logger="caffejax"):
            solver = make_solver(tmp_path / name, settings=settings, **options)
            if name == "watched":
                solver.callbacks.append(lambda solver: None)
            solver.solve()
            solver.close()
        lines = [record.getMessage().replace(name, "folder") for record in caplog.records]
        logs.append([re.sub(r"\(\S+ iter/s, \S+s/", "(", line) for line in lines])
    assert logs[0] == logs[1]
    assert [re.sub(r"[\d.e-]+", "#", line) for line in logs[0]] == [re.sub(r"[\d.e-]+", "#", line) for line in logs[2]]
    assert sum("Gradient clipping" in line for line in logs[0]) > 5


def test_steps_are_together_unless_somebody_looks(tmp_path: Path) -> None:
    class Watch(Callback):
        takes_several_steps = True

        def on_step(self, solver: Solver) -> None:
            ends.append(solver.iteration)

    class Silent(Callback):
        pass

    ends: list[int] = []
    solver = make_solver(tmp_path, settings="display: 20")
    solver.callbacks += [Watch(), Silent()]
    solver.step(90)
    assert ends == [1, 21, 41, 61, 81, 90]  # iterations 0, 20, 40 and so on are displayed
    ends.clear()
    solver.callbacks.append(lambda solver: None)
    solver.step(3)
    assert ends == [91, 92, 93]


WIDE = LAYERS["InnerProduct"].replace("num_output: 9", "num_output: 2000")


@pytest.mark.parametrize(
    ("number", "net", "options"),
    [
        (MAX_STEPS, LAYERS["InnerProduct"], {}),
        (1, WIDE, {}),
        (3, LAYERS["InnerProduct"], {"steps_per_dispatch": 3}),
        (1, LAYERS["InnerProduct"], {"debug_nans": True}),
        (1, LAYERS["InnerProduct"], {"optimizer": optax.sgd(0.1)}),
        (
            1,
            LAYERS["InnerProduct"],
            {
                "layer": 'layer { name: "in" type: "Input" top: "data" top: "label" '
                "input_param { shape { dim: 4 dim: 2 } shape { dim: 4 } } }",
                "data": {"data": np.ones((4, 2), np.float32), "label": np.zeros(4, np.float32)},
            },
        ),
    ],
    ids=["small", "large", "explicit", "debug_nans", "optax", "arrays"],
)
@pytest.mark.filterwarnings("ignore")
def test_net_solver_and_platform_choose(number: int, net: str, options: Any, tmp_path: Path) -> None:
    assert make_solver(tmp_path, net, **options)._updater.steps_per_dispatch == number


@pytest.mark.parametrize(
    ("name", "platforms"), [("digits/lenet", "tpu cuda"), ("cifar10_full/", "tpu cuda"), ("squeezenet/", "")]
)
def test_larger_nets_are_small_on_accelerators(name: str, platforms: str) -> None:
    configs = Path(__file__).parents[3] / "configs"
    net = Net(next(path for path in configs.glob(f"{name}*train*") if "solver" not in path.name), "TRAIN")
    assert [p for p in ("cpu", "tpu", "cuda") if is_small(net, 1, p)] == platforms.split()
    assert not is_small(net, 10, "cuda")  # 500 batches


def test_batches_that_an_accelerator_keeps_change_nothing(tmp_path: Path) -> None:
    solvers = [make_solver(tmp_path, LAYERS["Convolution"]) for _ in range(2)]
    assert solvers[0]._updater._joint_steps is not None
    solvers[0]._updater._joint_steps._keeps_batches = True
    for solver in solvers:
        for n in (1, 1, 30, 1):
            solver.step(n)
    assert_same(solvers)


@pytest.mark.parametrize("options", [{}, {"steps_per_dispatch": 5}, {"steps_per_dispatch": 1}], ids=str)
def test_data_that_cannot_be_read_end_training_at_their_iteration(options: Any, tmp_path: Path) -> None:
    single = make_solver(tmp_path, layer=write_data(tmp_path, bad_batch=13), **{"steps_per_dispatch": 1})
    single.step(13)
    solver = make_solver(tmp_path, layer=write_data(tmp_path, bad_batch=13), **options)
    with pytest.raises(DataError, match="label"):
        solver.solve()
    assert solver.iteration == 13
    for a, b in zip(read_arrays(solver), read_arrays(single), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
    with pytest.raises(DataError, match="label"):
        single.step(1)
    for each in (single, solver):
        each.step(4)
    assert solver.iteration == single.iteration == 17
    assert solver.loader.get_state() == single.loader.get_state()


@pytest.mark.parametrize("options", [{}, {"steps_per_dispatch": 1}], ids=str)
def test_a_call_for_several_iterations_does_not_end_with_losses_unread(options: Any, tmp_path: Path) -> None:
    net = 'layer { name: "power" type: "Power" bottom: "data" top: "x" power_param { scale: 1e30 } }'
    solver = make_solver(tmp_path, net, **options)
    with pytest.raises(SolverError, match="iteration"):
        solver.step(12)
