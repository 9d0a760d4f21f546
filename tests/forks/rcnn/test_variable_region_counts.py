"""Nets whose number of regions depends on the data are compiled for few numbers of rows."""

import logging
from typing import Any

import jax
import numpy as np
import pytest

from caffejax.core.program.net import Net

NET = """
layer { name: "in" type: "Input" top: "data" top: "boxes" top: "keep" input_param {
  shape { dim: 1 dim: 2 dim: 6 dim: 7 } shape { dim: 16 dim: 5 } shape { dim: 16 } } }
layer { name: "conv" type: "Convolution" bottom: "data" top: "conv"
  convolution_param { num_output: 2 kernel_size: 1 weight_filler { type: "xavier" } } }
%s
layer { name: "pool" type: "ROIPooling" bottom: "conv" bottom: "rois" top: "pool"
  roi_pooling_param { pooled_h: 2 pooled_w: 2 } }
layer { name: "ip" type: "InnerProduct" bottom: "pool" top: "ip"
  inner_product_param { num_output: 3 weight_filler { type: "xavier" } } }
"""
FILTERED = NET % 'layer { name: "filter" type: "Filter" bottom: "boxes" bottom: "keep" top: "rois" }'
PLAIN = NET.replace("boxes", "rois") % ""


def make_inputs(row_count: int) -> dict[str, np.ndarray]:
    random = np.random.default_rng(row_count)
    corners = random.integers(0, 4, (16, 2))
    boxes = np.concatenate([np.zeros((16, 1)), corners, corners + random.integers(0, 4, (16, 2))], 1)
    data = random.normal(size=(1, 2, 6, 7))
    return {"data": data, "boxes": boxes, "keep": np.arange(16) < row_count}


@pytest.mark.parametrize("row_count", [0, 1, 5, 16])
def test_values_and_gradients_use_only_the_valid_rows(row_count: int) -> None:
    filtered, plain = Net(FILTERED, "TRAIN"), Net(PLAIN, "TRAIN")
    params, state = plain.init(jax.random.key(0))
    inputs = {name: value.astype(np.float32) for name, value in make_inputs(row_count).items()}

    def compute_loss(net: Net, params: Any, inputs: Any) -> Any:
        return (net.apply(params, state, inputs, blobs=["ip"])[0]["ip"] ** 2).sum()

    result = jax.value_and_grad(lambda p: compute_loss(filtered, p, inputs))(params)
    rows = {"data": inputs["data"], "rois": inputs["boxes"][:row_count], "keep": inputs["keep"]}
    expected = jax.value_and_grad(lambda p: compute_loss(plain, p, rows))(params)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6), result, expected)


def test_row_counts_are_padded_to_few_compiled_sizes(caplog: pytest.LogCaptureFixture) -> None:
    net = Net(FILTERED, "TEST")
    params, state = net.init(jax.random.key(0))
    with caplog.at_level(logging.INFO, logger="caffejax"):
        for row_count in range(1, 9):
            inputs = {name: value.astype(np.float32) for name, value in make_inputs(row_count).items()}
            assert net.forward(params, state, inputs)[0]["ip"].shape == (row_count, 3)
    messages = [r.getMessage() for r in caplog.records if "Compiling" in r.getMessage()]
    assert len(messages) == 4  # for 1, 2, 4, 8 rows
    assert messages[-1] == "Compiling layers pool .. ip for up to 8 rows (4 sizes so far)"
