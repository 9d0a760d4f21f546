"""Tests of FlowNet 2's filler diagonal."""

import numpy as np
import pytest

from caffejax.base.errors import LayerError
from caffejax.core.layers.fillers import fill
from caffejax.core.schema.caffe_pb2 import FillerParameter
from layer_suite import recorded

test_recorded = recorded("DummyData", family="general")


@pytest.mark.parametrize("values", [[], [0.5], [2, -3, 4, 5]])
@pytest.mark.parametrize("shape", [(2, 2, 1, 1), (2, 3, 2, 3), (4, 2, 3, 3), (3, 3), (4,)])
def test_diagonal_averages_each_channel(shape: tuple[int, ...], values: list[float]) -> None:
    outputs, inputs, height, width = (*shape, 1, 1, 1)[:4]
    expected = np.zeros((outputs, inputs, height, width))
    for n in range(min(outputs, inputs)):
        for row, column in np.ndindex(height, width):
            expected[n, n, row, column] = (values[n] if n < len(values) else 1) / (height * width)
    result = fill(FillerParameter(type="diagonal", diag_val=values), None, shape)
    np.testing.assert_allclose(result, expected.reshape(shape), rtol=1e-6)


def test_diagonal_needs_at_most_four_axes() -> None:
    with pytest.raises(LayerError, match="diagonal filler: the blob must have 1 to 4 axes"):
        fill(FillerParameter(type="diagonal"), None, (2, 2, 1, 1, 1))
