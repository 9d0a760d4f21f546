"""Nets that sample regions on the host, in code that JAX traces: equal to the run on exactly the sampled rows."""

from typing import Any

import jax
import numpy as np
import pytest

from caffejax import Net, PaddedRows

ROIS, CLASSES = 24, 3
RFCN = f"""
layer {{ name: "in" type: "Input" top: "features" top: "proposals" top: "truth" input_param {{
  shape {{ dim: 1 dim: 4 dim: 12 dim: 14 }} shape {{ dim: {ROIS} dim: 5 }} shape {{ dim: 3 dim: 5 }} }} }}
layer {{ name: "roi_data" type: "Python" bottom: "proposals" bottom: "truth"
  top: "rois" top: "labels" top: "targets" top: "inside" top: "outside"
  python_param {{ module: "rpn.proposal_target_layer" layer: "ProposalTargetLayer"
    param_str: "{{'num_classes': {CLASSES}, 'batch_size': 24, 'bg_thresh_lo': 0.15}}" }} }}
layer {{ name: "conv_scores" type: "Convolution" bottom: "features" top: "conv_scores"
  convolution_param {{ num_output: {4 * CLASSES} kernel_size: 1 weight_filler {{ type: "xavier" }} }} }}
layer {{ name: "conv_boxes" type: "Convolution" bottom: "features" top: "conv_boxes"
  convolution_param {{ num_output: {16 * CLASSES} kernel_size: 1 weight_filler {{ type: "xavier" }} }} }}
layer {{ name: "pooled_scores" type: "PSROIPooling" bottom: "conv_scores" bottom: "rois" top: "pooled_scores"
  psroi_pooling_param {{ spatial_scale: 0.5 output_dim: {CLASSES} group_size: 2 }} }}
layer {{ name: "scores" type: "Pooling" bottom: "pooled_scores" top: "scores"
  pooling_param {{ pool: AVE kernel_size: 2 stride: 2 }} }}
layer {{ name: "pooled_boxes" type: "PSROIPooling" bottom: "conv_boxes" bottom: "rois" top: "pooled_boxes"
  psroi_pooling_param {{ spatial_scale: 0.5 output_dim: {4 * CLASSES} group_size: 2 }} }}
layer {{ name: "boxes" type: "Pooling" bottom: "pooled_boxes" top: "boxes"
  pooling_param {{ pool: AVE kernel_size: 2 stride: 2 }} }}
"""
PLAIN_LOSSES = """
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "scores" bottom: "labels" top: "loss"
  propagate_down: true propagate_down: false }
layer { name: "box_loss" type: "SmoothL1Loss" bottom: "boxes" bottom: "targets" bottom: "inside" bottom: "outside"
  top: "box_loss" loss_weight: 1 smooth_l1_loss_param { sigma: 2 } }
layer { name: "accuracy" type: "Accuracy" bottom: "scores" bottom: "labels" top: "accuracy" }
"""
HARD_LOSSES = """
layer { name: "each_class" type: "SoftmaxWithLossOHEM" bottom: "scores" bottom: "labels"
  top: "sum_class" top: "prob" top: "each_class" loss_weight: 0 loss_weight: 0 loss_weight: 0
  propagate_down: false propagate_down: false }
layer { name: "each_box" type: "SmoothL1LossOHEM" bottom: "boxes" bottom: "targets" bottom: "inside"
  top: "sum_box" top: "each_box" loss_weight: 0 loss_weight: 0
  propagate_down: false propagate_down: false propagate_down: false }
layer { name: "shaped" type: "Reshape" bottom: "each_class" top: "shaped"
  reshape_param { shape { dim: 0 dim: 1 dim: 1 dim: 1 } } }
layer { name: "each" type: "Eltwise" bottom: "shaped" bottom: "each_box" top: "each" }
layer { name: "annotator" type: "BoxAnnotatorOHEM" bottom: "rois" bottom: "each" bottom: "labels" bottom: "inside"
  top: "hard_labels" top: "hard_weights" box_annotator_ohem_param { roi_per_img: 6 ignore_label: -1 } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "scores" bottom: "hard_labels" top: "loss"
  loss_param { ignore_label: -1 } propagate_down: true propagate_down: false }
layer { name: "box_loss" type: "SmoothL1LossOHEM" bottom: "boxes" bottom: "targets" bottom: "hard_weights"
  top: "box_loss" loss_weight: 1 loss_param { normalization: PRE_FIXED pre_fixed_normalizer: 6 } }
layer { name: "quiet" type: "Silence" bottom: "prob" bottom: "sum_class" bottom: "sum_box" bottom: "outside" }
"""


def draw_inputs(seed: int, num_truth: int = 3) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)

    def draw_boxes(n: int) -> np.ndarray:
        corners = rng.integers(0, 14, (n, 2))
        return np.concatenate([corners, corners + rng.integers(4, 10, (n, 2))], axis=1)

    truth = np.concatenate([draw_boxes(num_truth), rng.integers(1, CLASSES, (num_truth, 1))], axis=1)
    rois = np.pad(draw_boxes(ROIS), ((0, 0), (1, 0)))
    features = rng.normal(size=(1, 4, 12, 14))
    return {k: v.astype(np.float32) for k, v in {"features": features, "proposals": rois, "truth": truth}.items()}


@pytest.mark.parametrize("backward", ["autodiff", "rules"])
@pytest.mark.parametrize("losses", [PLAIN_LOSSES, HARD_LOSSES], ids=["plain", "hard"])
def test_losses_and_gradients_equal_those_of_the_sampled_regions(losses: str, backward: Any) -> None:
    net = Net(RFCN + losses, "TRAIN", backward=backward)
    params, state = net.init(jax.random.key(0))

    def compute(params: Any, inputs: Any, key: Any) -> Any:
        return jax.value_and_grad(net.loss, has_aux=True)(params, state, inputs, key, blobs=(*net.outputs, "rois"))

    jitted, numbers = jax.jit(compute), set()
    for seed in range(4):
        arguments = params, draw_inputs(seed), jax.random.key(seed)
        ((loss, outputs), grads), ((expected, expected_outputs), expected_grads) = (
            f(*arguments) for f in (jitted, compute)
        )
        np.testing.assert_allclose(loss, expected, rtol=1e-5)
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6), grads, expected_grads)
        assert isinstance(outputs.blobs["rois"], PaddedRows)
        numbers.add(int(outputs.blobs["rois"].num_rows))
        for name, blob in expected_outputs.blobs.items():
            np.testing.assert_allclose(np.asarray(outputs.blobs[name]), blob, rtol=1e-5, atol=1e-6)
    assert len(numbers) > 1


def test_several_numbers_of_truth_share_a_program() -> None:
    """The layers read the valid rows of an input that the caller pads."""
    net = Net(RFCN + PLAIN_LOSSES, "TRAIN")
    params, state = net.init(jax.random.key(0))
    jitted = jax.jit(jax.value_and_grad(net.loss, has_aux=True))
    for num_truth in (1, 3, 5):
        inputs = draw_inputs(num_truth, num_truth)
        padded = np.pad(inputs["truth"], ((0, 5 - num_truth), (0, 0)), constant_values=np.nan)
        rows = PaddedRows(padded, np.int32(num_truth))
        result = jitted(params, state, inputs | {"truth": rows}, jax.random.key(0))
        expected = jax.value_and_grad(net.loss, has_aux=True)(params, state, inputs, jax.random.key(0))
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6), result[1], expected[1])
        np.testing.assert_allclose(result[0][0], expected[0][0], rtol=1e-5)
    assert jitted._cache_size() == 1
