"""Detectors that take one image: several devices, with an image each, train as one device in as many passes."""

from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from caffejax import Solver, read_solver
from caffejax.core.solver.compiled_updater import RowPadding
from rcnn.synthetic_images import SIZE, draw_image
from rcnn.test_traced_samplings import HARD_LOSSES, PLAIN_LOSSES, RFCN, draw_inputs

DEVICES = 8
TOY = Path(__file__).parents[3] / "configs" / "faster_rcnn_toy" / "solver.prototxt"


def train(net: str, folder: Path, devices: int, **options: Any) -> Any:
    """Return params, the mean loss, and the last outputs after four iterations on images with 1 to 5 boxes."""
    batches = [draw_inputs(i, 1 + i % 5) for i in range(12)]
    solver = Solver(
        f'net_param {{ {net} }} base_lr: 0.05 lr_policy: "fixed" momentum: 0.9 random_seed: 3 max_iter: 9 '
        f'iter_size: {1 if devices > 1 else DEVICES} average_loss: 9 snapshot_prefix: "{folder}/x"',
        data=batches,
        devices=devices,
        **options,
    )
    solver.step(4)
    result = jax.tree.map(np.array, (solver.variables.params, solver.smoothed_loss))
    solver.close()
    return result


@pytest.mark.parametrize(
    ("losses", "options"),
    [
        (PLAIN_LOSSES, {}),
        (HARD_LOSSES, {}),
        (HARD_LOSSES, {"steps_per_dispatch": 2}),
        (PLAIN_LOSSES, {"precision": "bfloat16"}),
        (HARD_LOSSES, {"remat": "auto", "memory_limit": 1}),
    ],
    ids=["plain", "hard", "steps", "bfloat16", "recompute"],
)
def test_devices_with_an_image_each_train_as_passes(
    losses: str, options: Any, tmp_path: Path, eight_devices: ProcessPoolExecutor
) -> None:
    expected = train(RFCN + losses, tmp_path, 1, **options)
    result = eight_devices.submit(train, RFCN + losses, tmp_path, DEVICES, **options).result()
    tolerance = 2e-2 if "precision" in options else 1e-4
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance / 10), result, expected)


def draw_toy_batches() -> list[dict[str, np.ndarray]]:
    """Return images with 2 to 5 boxes."""
    rng, batches = np.random.default_rng(0), []
    for i in range(8):
        data, boxes = draw_image(rng)
        corners = rng.integers(0, 40, (i % 4, 2)), rng.integers(50, 90, (i % 4, 2))
        more_boxes = np.concatenate([*corners, np.ones((i % 4, 1))], axis=1).astype(np.float32)
        im_info = np.asarray([[SIZE, SIZE, 1]], np.float32)
        batches.append({"data": data, "im_info": im_info, "gt_boxes": np.concatenate([boxes, more_boxes])})
    return batches


def train_toy(folder: Path, devices: int, iter_size: int) -> Any:
    param = read_solver(TOY)
    param.iter_size, param.snapshot_prefix = iter_size, str(folder / "toy")
    param.clip_gradients = -1  # Caffe clips the sum over passes, but the mean over devices
    solver = Solver(param, file=TOY, data=draw_toy_batches(), devices=devices)
    solver.step(4)
    result = jax.tree.map(np.array, (solver.variables.params, solver.smoothed_loss))
    solver.close()
    return result


@pytest.mark.long
def test_faster_rcnn_on_devices_equals_passes(tmp_path: Path, eight_devices: ProcessPoolExecutor) -> None:
    expected = train_toy(tmp_path, 1, DEVICES)
    result = eight_devices.submit(train_toy, tmp_path, DEVICES, 1).result()
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6), result, expected)


@pytest.mark.long
def test_faster_rcnn_as_one_program_equals_its_parts_on_exact_shapes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = train_toy(tmp_path, 1, 1)
    monkeypatch.setattr("caffejax.core.solver.host_program.schedule_in_order", lambda graph: None)
    monkeypatch.setattr(RowPadding, "__call__", lambda self, batch: dict(batch))
    expected = train_toy(tmp_path, 1, 1)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-7), result, expected)
