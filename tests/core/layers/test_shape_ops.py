"""Tests of Concat, Flatten, Reshape, Silence, Slice, Split and Tile."""

import numpy as np
import pytest

from layer_nets import run_layer
from layer_suite import BATCH, IMAGE, MATRIX, layer_case, properties, recorded

test_recorded = recorded("Concat", "Flatten", "Reshape", "Silence", "Slice", "Split", "Tile")
test_properties = properties(
    layer_case("Concat", "", IMAGE, (BATCH, 2, 5, 6)),
    layer_case("Flatten", "", IMAGE),
    layer_case("Reshape", "reshape_param { shape { dim: 0 dim: 5 dim: -1 } }", IMAGE),
    layer_case("Silence", "", MATRIX, tops=0),
    layer_case("Slice", "slice_param { slice_point: 1 }", IMAGE, tops=2),
    layer_case("Split", "", MATRIX, tops=2),
    layer_case("Tile", "tile_param { tiles: 2 }", IMAGE),
)


X = np.arange(2 * 3 * 4, dtype=np.float32).reshape(2, 3, 4)


@pytest.mark.parametrize(
    ("layer_type", "text", "shape"),
    [
        ("Flatten", "axis: 2 end_axis: 1", (2, 3, 1, 4)),  # an axis is new
        ("Flatten", "axis: -2 end_axis: -2", (2, 3, 4)),
        ("Reshape", "shape { dim: 2 dim: -1 } axis: -2 num_axes: 1", (2, 3, 2, 2)),
        ("Reshape", "shape { dim: -1 dim: 0 } axis: 1", (2, 3, 4)),
        ("Tile", "axis: -3 tiles: 2", (4, 3, 4)),
    ],
)
def test_top_shapes(layer_type: str, text: str, shape: tuple[int, ...]) -> None:
    assert run_layer(layer_type, text, X)[0].shape == shape


def test_a_slice_may_be_empty() -> None:
    full_slice, empty_slice = run_layer("Slice", "slice_param { slice_point: 3 }", X, tops=2)
    np.testing.assert_array_equal(full_slice, X)
    assert empty_slice.shape == (2, 0, 4)
