"""Tests of ArgMax, BatchReindex, Crop, Embed and Filter."""

import numpy as np
import pytest

from layer_nets import run_layer
from layer_suite import BATCH, IMAGE, LABELS, MATRIX, layer_case, properties, recorded

test_recorded = recorded("ArgMax", "BatchReindex", "Crop", "Embed", "Filter")
test_properties = properties(
    layer_case("ArgMax", "argmax_param { top_k: 2 }", MATRIX),
    layer_case("BatchReindex", "", MATRIX, (4,)),
    layer_case("Crop", "crop_param { axis: 2 offset: 1 }", IMAGE, (BATCH, 3, 3, 4)),
    layer_case("Embed", "embed_param { num_output: 3 input_dim: 5 }", (BATCH, 4), classes=5),
    layer_case("Filter", "", MATRIX, LABELS),
)


X = np.arange(2 * 3 * 4, dtype=np.float32).reshape(2, 3, 4)


def test_embed_returns_nan_for_indices_out_of_range() -> None:
    (top,) = run_layer("Embed", "num_output: 2 input_dim: 3", [-2.0, 2.9, 3.0])
    np.testing.assert_array_equal(np.isnan(top).all(axis=1), [True, False, True])


@pytest.mark.parametrize(
    ("text", "shape"), [("axis: -2 top_k: 2", (2, 2, 4)), ("top_k: 12 out_max_val: true", (2, 2, 12))]
)
def test_top_shapes_of_argmax(text: str, shape: tuple[int, ...]) -> None:
    assert run_layer("ArgMax", text, X)[0].shape == shape


def test_argmax_treats_minus_0_as_0() -> None:
    (top,) = run_layer("ArgMax", "", [[0.0, -0.0, -1.0], [-0.0, 0.0, -1.0]])
    np.testing.assert_array_equal(top.ravel(), [1, 1])


def test_batch_reindex_returns_nan_for_indices_out_of_range() -> None:
    (top,) = run_layer("BatchReindex", "", X, [1, -1, 2, 0.9])
    np.testing.assert_array_equal(top[0], X[1])
    assert np.isnan(top[1:3]).all()
    np.testing.assert_array_equal(top[3], X[0])


def test_crop_ignores_the_sizes_of_other_axes() -> None:
    (top,) = run_layer("Crop", "axis: -1 offset: 2", X, np.zeros((7, 9, 2)))
    np.testing.assert_array_equal(top, X[:, :, 2:])
