"""MS-CNN's sampling on several devices: equal to one device with the images of all of them."""

from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from caffejax import Solver

RECOMPUTE: dict[str, Any] = {"remat": "auto", "memory_limit": 1}
DEVICES, ROIS, TRUTH, CLASSES = 8, 10, 2, 3


def make_net(images: int) -> str:
    """Return a net that takes all proposals of a number of images."""
    return f"""
    layer {{ name: "in" type: "Input" top: "features" top: "proposals" top: "truth" input_param {{
      shape {{ dim: {images} dim: 3 dim: 8 dim: 9 }} shape {{ dim: {images * ROIS} dim: 5 }}
      shape {{ dim: {images * TRUTH} dim: 7 }} }} }}
    layer {{ name: "target" type: "ProposalTarget" bottom: "proposals" bottom: "truth" top: "rois" top: "labels"
      top: "targets" top: "inside" top: "outside" top: "matched" bbox_reg_param {{ cls_aware: true }}
      proposal_target_param {{ cls_num: {CLASSES} batch_size: -1 num_img_per_batch: {images} fg_fraction: 0.25
        fg_thr: 0.5 bg_thr_hg: 0.5 bg_thr_lw: 0.1 img_width: 90 img_height: 80 append_gtbox: true }} }}
    layer {{ name: "conv" type: "Convolution" bottom: "features" top: "conv"
      convolution_param {{ num_output: 4 kernel_size: 3 pad: 1 weight_filler {{ type: "xavier" }} }} }}
    layer {{ name: "pool" type: "ROIPooling" bottom: "conv" bottom: "rois" top: "pool"
      roi_pooling_param {{ pooled_h: 2 pooled_w: 2 spatial_scale: 0.1 }} }}
    layer {{ name: "scores" type: "InnerProduct" bottom: "pool" top: "scores"
      inner_product_param {{ num_output: {CLASSES} weight_filler {{ type: "xavier" }} }} }}
    layer {{ name: "deltas" type: "InnerProduct" bottom: "pool" top: "deltas"
      inner_product_param {{ num_output: {4 * CLASSES} weight_filler {{ type: "xavier" }} }} }}
    layer {{ name: "flat" type: "Flatten" bottom: "targets" top: "flat" }}
    layer {{ name: "flat_in" type: "Flatten" bottom: "inside" top: "flat_in" }}
    layer {{ name: "flat_out" type: "Flatten" bottom: "outside" top: "flat_out" }}
    layer {{ name: "loss" type: "SoftmaxWithLoss" bottom: "scores" bottom: "labels" top: "loss" }}
    layer {{ name: "box_loss" type: "SmoothL1Loss" bottom: "deltas" bottom: "flat" bottom: "flat_in"
      bottom: "flat_out" top: "box_loss" loss_weight: 1 }}
    layer {{ name: "accuracy" type: "Accuracy" bottom: "scores" bottom: "labels" top: "accuracy" }}
    layer {{ name: "quiet" type: "Silence" bottom: "matched" }}"""


def draw_image(seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)

    def draw_boxes(n: int) -> np.ndarray:
        corners = rng.integers(0, 40, (n, 2))
        return np.concatenate([np.zeros((n, 1)), corners, corners + rng.integers(15, 40, (n, 2))], axis=1)

    truth = draw_boxes(TRUTH)
    near = truth[rng.integers(0, TRUTH, ROIS - 4)] + [0, 1, 1, 1, 1] * rng.integers(-9, 9, (ROIS - 4, 5))
    labels = np.stack([rng.integers(1, CLASSES, TRUTH), np.zeros(TRUTH)], axis=1)
    arrays = {
        "features": rng.normal(size=(1, 3, 8, 9)),
        "proposals": np.concatenate([near, draw_boxes(4)]),
        "truth": np.concatenate([truth, labels], axis=1),
    }
    return {name: array.astype(np.float32) for name, array in arrays.items()}


def join_images(images: list[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """Return a batch of images, whose rows of boxes begin with the number of their image."""
    numbered = [
        {name: x + np.eye(1, x.shape[1]).astype(np.float32) * i if x.ndim == 2 else x for name, x in image.items()}
        for i, image in enumerate(images)
    ]
    return {name: np.concatenate([image[name] for image in numbered]) for name in images[0]}


def train(folder: Path, devices: int, **options: Any) -> Any:
    images = [draw_image(i) for i in range(3 * DEVICES)]
    batches = images if devices > 1 else [join_images(images[i : i + DEVICES]) for i in range(0, 3 * DEVICES, DEVICES)]
    solver = Solver(
        f'net_param {{ {make_net(1 if devices > 1 else DEVICES)} }} base_lr: 0.05 lr_policy: "fixed" momentum: 0.9 '
        f'random_seed: 3 max_iter: 9 average_loss: 9 snapshot_prefix: "{folder}/x"',
        data=batches,
        devices=devices,
        **options,
    )
    solver.step(4)
    result = jax.tree.map(np.array, (solver.variables.params, solver.smoothed_loss))
    solver.close()
    return result


@pytest.mark.parametrize("options", [{}, {"steps_per_dispatch": 2}, {"precision": "bfloat16"}, RECOMPUTE], ids=str)
def test_devices_train_as_one_with_all_images(options: Any, tmp_path: Path, eight_devices: ProcessPoolExecutor) -> None:
    expected = train(tmp_path, 1, **options)
    result = eight_devices.submit(train, tmp_path, DEVICES, **options).result()
    tolerance = 2e-2 if "precision" in options else 1e-4
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance / 10), result, expected)
