"""The augmentation steps of AnnotatedData: boxes, sampling and colors."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from caffejax.core.schema import caffe_pb2
from caffejax.forks.detection.boxes import overlaps
from caffejax.forks.detection.data.annotated_image import box_coverage, clip_to_window, window_coverage
from caffejax.forks.detection.data.color_changes import distort
from caffejax.forks.detection.data.ssd_augmentation import sampler_windows

BOXES = np.array([[0.05, 0.2, 0.25, 0.6], [0.4, 0.3, 0.55, 0.8], [0.7, 0.1, 0.9, 0.5]], np.float32)


def reference_overlap(denominator_name: str, box: list[float], window: list[float]) -> float:
    def area(b: list[float]) -> float:
        return max(0.0, b[2] - b[0]) * max(0.0, b[3] - b[1])

    intersection = area(
        [max(box[0], window[0]), max(box[1], window[1]), min(box[2], window[2]), min(box[3], window[3])]
    )
    denominator = {"box": area(box), "window": area(window), "union": area(box) + area(window) - intersection}[
        denominator_name
    ]
    return intersection / denominator if intersection else 0.0


SIDES = st.tuples(st.integers(0, 8), st.integers(0, 8)).map(lambda p: sorted([p[0] / 8, (p[1] + 1) / 8]))
BOX_STRATEGY = st.tuples(SIDES, SIDES).map(lambda p: [p[0][0], p[1][0], p[0][1], p[1][1]])


@given(BOX_STRATEGY, BOX_STRATEGY)
def test_overlaps_equal_the_reference(box, window):
    a, b = np.array([box], np.float32), np.array(window, np.float32)
    for function, denominator_name in (overlaps, "union"), (box_coverage, "box"), (window_coverage, "window"):
        np.testing.assert_allclose(function(a, b), reference_overlap(denominator_name, box, window), atol=1e-6)


@given(BOX_STRATEGY, BOX_STRATEGY)
def test_visible_objects_are_inside_the_window(box, window):
    if window[0] == window[2] or window[1] == window[3]:
        return
    clipped_boxes, is_visible = clip_to_window(np.array([box], np.float32), np.array(window, np.float32))
    assert ((clipped_boxes >= 0) & (clipped_boxes <= 1)).all()
    assert is_visible[0] == (reference_overlap("box", box, window) > 0)


@settings(max_examples=30)
@given(
    st.integers(0, 10_000), st.sampled_from(["jaccard_overlap", "sample_coverage", "object_coverage"]), st.booleans()
)
def test_sampled_windows_satisfy_their_constraints(seed, name, is_minimum: bool):
    measure = {"jaccard_overlap": overlaps, "sample_coverage": window_coverage, "object_coverage": box_coverage}[name]
    sampler = caffe_pb2.BatchSampler(max_sample=3, max_trials=40)
    sampler.sampler.MergeFrom(caffe_pb2.Sampler(min_scale=0.3, min_aspect_ratio=0.5, max_aspect_ratio=2))
    setattr(sampler.sample_constraint, f"{'min' if is_minimum else 'max'}_{name}", 0.25)
    objects = BOXES
    windows = sampler_windows(sampler, objects, np.random.default_rng(seed))
    assert len(windows) <= 3
    assert ((windows >= 0) & (windows <= 1 + 1e-6)).all()
    extents = windows[:, 2:] - windows[:, :2]
    np.testing.assert_array_less(0.3**2 - 1e-6, extents.prod(axis=1))
    for window in windows:
        values = measure(objects, window)
        assert (values >= 0.25).any() if is_minimum else (values <= 0.25).any()


@pytest.mark.parametrize("seed", range(3))
def test_distortion_stays_within_its_settings(seed):
    image = np.random.default_rng(seed).integers(40, 200, (20, 30, 3), np.uint8)
    param = caffe_pb2.DistortionParameter(brightness_prob=1, brightness_delta=30)
    shift = distort(image, param, np.random.default_rng(seed)).astype(int) - image
    assert len(np.unique(shift)) == 1
    assert abs(shift[0, 0, 0]) <= 30
    param = caffe_pb2.DistortionParameter(contrast_prob=1, contrast_lower=0.5, contrast_upper=1.2)
    ratio = distort(image, param, np.random.default_rng(seed)) / image
    assert np.ptp(ratio) < 0.03
    assert 0.48 < ratio.mean() < 1.22
    param = caffe_pb2.DistortionParameter(random_order_prob=1)
    reordered_image = distort(image, param, np.random.default_rng(seed))
    np.testing.assert_array_equal(np.sort(reordered_image, axis=2), np.sort(image, axis=2))
    inactive_param = caffe_pb2.DistortionParameter(
        brightness_delta=30, hue_delta=18, contrast_upper=2, saturation_upper=2
    )
    np.testing.assert_array_equal(distort(image, inactive_param, np.random.default_rng(seed)), image)
