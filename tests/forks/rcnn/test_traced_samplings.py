"""Nets that sample regions, in code that JAX traces: equal to the run on exactly the sampled rows."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from caffejax import LayerError, Net, PaddedRows, Solver
from caffejax.core.layers.context import fold_in_name

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


SAMPLING = """
layer {{ name: "in" type: "Input" top: "proposals" top: "truth" input_param {{
  shape {{ dim: 24 dim: 5 }} shape {{ dim: 4 dim: 5 }} }} }}
layer {{ name: "roi_data" type: "Python" bottom: "proposals" bottom: "truth"
  top: "rois" top: "labels" top: "targets" top: "inside" top: "outside"
  python_param {{ module: "rpn.proposal_target_layer" layer: "ProposalTargetLayer" param_str: "{}" }} }}
"""
SETTINGS = {
    "defaults": {"num_classes": 3},
    "few": {"num_classes": 3, "batch_size": 6, "bg_thresh_lo": 0.0, "bbox_inside_weights": [1, 2, 3, 4]},
    "normalized": {"num_classes": 3, "batch_size": 9, "fg_fraction": 1.0, "bbox_normalize_targets_precomputed": True},
    "both": {"num_classes": 3, "batch_size": 12, "fg_thresh": 0.2, "bg_thresh_hi": 0.7, "bg_thresh_lo": 0.0},
    "agnostic": {"num_classes": 2, "batch_size": 12, "bg_thresh_lo": 0.0},
    "agnostic_of_three": {"num_classes": 3, "agnostic": True, "bbox_normalize_targets_precomputed": True},
    "all": {"num_classes": 2, "batch_size": -1, "bg_thresh_lo": 0.0, "bg_thresh_hi": 0.3},
    "all_twice": {"num_classes": 3, "batch_size": -1, "fg_thresh": 0.2, "bg_thresh_hi": 1.1, "bg_thresh_lo": 0.0},
    "none": {"num_classes": 3, "fg_thresh": 2.0, "bg_thresh_lo": 0.99},
}
TOPS = ("rois", "labels", "targets", "inside", "outside")


def measure_overlap(a: np.ndarray, b: np.ndarray) -> float:
    sides = [max(0.0, min(a[i + 2], b[i + 2]) - max(a[i], b[i]) + 1) for i in range(2)]
    areas = [(box[2] - box[0] + 1) * (box[3] - box[1] + 1) for box in (a, b)]
    return float(sides[0] * sides[1] / (sum(areas) - sides[0] * sides[1]))


def sample_by_loops(s: dict[str, Any], rois: np.ndarray, truth: np.ndarray, key: jax.Array) -> list[np.ndarray]:
    """Return the five tops: of each kind of region those whose random numbers are smallest, by plain loops."""
    s = {"batch_size": 128, "fg_fraction": 0.25, "fg_thresh": 0.5, "bg_thresh_hi": 0.5, "bg_thresh_lo": 0.1, **s}
    draws = [jax.random.uniform(jax.random.fold_in(key, i), (len(x), 2)) for i, x in enumerate((rois, truth))]
    boxes = [(roi[1:], d) for roi, d in zip(rois, np.asarray(draws[0]), strict=True) if roi[0] == 0]
    boxes += [(box[:4], d) for box, d in zip(truth, np.asarray(draws[1]), strict=True) if box[4] > 0]
    real, positives, negatives = [box for box in truth if box[4] > 0], [], []
    for box, draw in boxes:
        overlap, i = max((measure_overlap(box, t), -i) for i, t in enumerate(real))
        if overlap >= s["fg_thresh"]:
            positives.append((draw[0], box, real[-i]))
        if s["bg_thresh_lo"] <= overlap < s["bg_thresh_hi"]:
            negatives.append((draw[1], box, None))
    max_rows = float("inf") if s["batch_size"] == -1 else s["batch_size"]
    positives, negatives = (sorted(x, key=lambda x: x[0]) for x in (positives, negatives))
    chosen = positives[: int(min(np.round(s["fg_fraction"] * max_rows), len(positives)))]
    chosen += negatives[: int(min(max_rows - len(chosen), len(negatives)))]
    tops = [np.zeros((len(chosen), n)) for n in (5, 1, 4 * s["num_classes"], 4 * s["num_classes"])]
    for row, (_, box, match) in enumerate(chosen):
        tops[0][row, 1:] = box
        if match is not None:
            k = int(match[4])
            size, new_size = box[2:] - box[:2] + 1, match[2:4] - match[:2] + 1
            delta = [*((match[:2] + new_size / 2 - box[:2] - size / 2) / size), *np.log(new_size / size)]
            if s.get("bbox_normalize_targets_precomputed"):
                delta = np.asarray(delta) / [0.1, 0.1, 0.2, 0.2]
            tops[1][row] = k
            k = min(k, 1) if s.get("agnostic", s["num_classes"] == 2) else k
            tops[2][row, 4 * k : 4 * k + 4] = delta
            tops[3][row, 4 * k : 4 * k + 4] = s.get("bbox_inside_weights", 1)
    return [tops[0], tops[1][:, 0], tops[2], tops[3], tops[3] > 0]


@pytest.mark.parametrize("name", SETTINGS)
def test_regions_are_sampled_by_the_same_draws_on_the_host_and_in_traced_code(name: str) -> None:
    """The traced run has padded regions and truth, whose padding holds any values."""
    net, numbers = Net(SAMPLING.format(SETTINGS[name]), "TRAIN"), set()
    jitted = jax.jit(lambda inputs, key: net.apply({}, {}, inputs, key=key)[0])
    assert net.host_layers == ()
    for seed in range(5):
        inputs = {k: v for k, v in draw_inputs(seed, 1 + seed % 4).items() if k != "features"}
        num_rois, num_truth, key = ROIS - 3 * seed, 1 + seed % 4, jax.random.key(seed)
        inputs["proposals"] = inputs["proposals"][:num_rois]
        padded = {
            "proposals": np.pad(inputs["proposals"], ((0, ROIS - num_rois), (0, 0))),
            "truth": np.pad(inputs["truth"], ((0, 4 - num_truth), (0, 0)), constant_values=np.nan),
        }
        counts = {"proposals": num_rois, "truth": num_truth}
        traced = jitted({k: PaddedRows(v, np.int32(counts[k])) for k, v in padded.items()}, key)
        padded["proposals"][num_rois:, 0] = -1  # as ProposalLayer marks its padding
        marked = jitted({"proposals": padded["proposals"], "truth": np.nan_to_num(padded["truth"])}, key)
        eager, _ = net.apply({}, {}, inputs, key=key)
        expected = sample_by_loops(
            SETTINGS[name], inputs["proposals"], inputs["truth"], fold_in_name(key, net.graph.layers[-1].key)
        )
        numbers.add(len(expected[0]))
        for top, blob in zip(TOPS, expected, strict=True):
            for result in (traced, marked, eager):
                np.testing.assert_allclose(np.asarray(result[top]), blob, rtol=1e-5, atol=1e-5, err_msg=top)
            assert not np.any(np.asarray(traced[top].array)[len(blob) :])
    assert len(numbers) > 1 or name != "defaults"
    assert (numbers == {0}) == (name == "none")


def test_sampling_is_mapped_scanned_and_exported() -> None:
    net = Net(SAMPLING.format(SETTINGS["few"]), "TRAIN")
    images = [{k: v for k, v in draw_inputs(seed, 4).items() if k != "features"} for seed in range(4)]
    batch = jax.tree.map(lambda *x: np.stack(x), *images)
    keys = jax.random.split(jax.random.key(0), 4)

    def sample(inputs: Any, key: Any) -> Any:
        blobs, _ = net.apply({}, {}, inputs, key=key, blobs=TOPS)
        return [blobs[top].array for top in TOPS], blobs["rois"].num_rows

    expected = [jax.jit(sample)(image, key) for image, key in zip(images, keys, strict=True)]
    mapped = jax.jit(jax.vmap(sample))(batch, keys)
    _, scanned = jax.lax.scan(lambda carry, x: (carry, sample(*x)), 0, (batch, keys))
    by_key = jax.vmap(sample, in_axes=(None, 0))(images[0], keys)  # the image is a constant of NumPy
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a[0], b, rtol=1e-6, atol=1e-6), by_key, expected[0])
    exported = jax.export.export(jax.jit(sample))(images[0], keys[0])
    for i, one in enumerate(expected):
        for result in (mapped, scanned, exported.call(images[i], keys[i])):
            at_i = result if result[1].ndim == 0 else jax.tree.map(lambda x, i=i: x[i], result)
            jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-6), at_i, one)


@pytest.mark.parametrize(("blob", "column", "value"), [("truth", 4, CLASSES), ("proposals", 0, 1)])
def test_refused_values_are_errors_on_the_host_and_nan_in_traced_code(
    blob: str, column: int, value: int, tmp_path: Path
) -> None:
    words = {"truth": "the class of a ground-truth box must be below num_classes 3, not 3", "proposals": "image 0"}
    net = Net(RFCN + PLAIN_LOSSES, "TRAIN")
    params, state = net.init(jax.random.key(0))
    inputs = draw_inputs(0)
    inputs[blob][1, column] = value
    with pytest.raises(LayerError, match=rf"'roi_data' \(Python\): .*{words[blob]}"):
        net.loss(params, state, inputs, jax.random.key(0))
    assert jnp.isnan(jax.jit(net.loss)(params, state, inputs, jax.random.key(0))[0])
    for options in ({}, {"steps_per_dispatch": 2}):
        settings = f'base_lr: 0.01 lr_policy: "fixed" max_iter: 4 snapshot_prefix: "{tmp_path}/x"'
        solver = Solver(f"net_param {{ {RFCN + PLAIN_LOSSES} }} {settings}", data=[inputs], **options)
        with pytest.raises(LayerError, match=rf"'roi_data' \(Python\): .*{words[blob]}"):
            solver.step(2)
        solver.close()
