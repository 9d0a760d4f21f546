"""Detectors that take one image: several devices, with an image each, train as one device in as many passes."""

from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from test_traced_samplings import HARD_LOSSES, PLAIN_LOSSES, RFCN, draw_inputs

from caffejax import Solver

DEVICES = 4


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
    ],
    ids=["plain", "hard", "steps", "bfloat16"],
)
def test_devices_with_an_image_each_train_as_passes(
    losses: str, options: Any, tmp_path: Path, eight_devices: ProcessPoolExecutor
) -> None:
    expected = train(RFCN + losses, tmp_path, 1, **options)
    result = eight_devices.submit(train, RFCN + losses, tmp_path, DEVICES, **options).result()
    tolerance = 2e-2 if "precision" in options else 1e-4
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance / 10), result, expected)
