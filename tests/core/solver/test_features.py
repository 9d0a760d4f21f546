"""Extracted features equal the blobs of consecutive forward passes."""

from collections.abc import Iterator
from itertools import islice
from typing import Any

import jax
import numpy as np
import pytest

from caffejax import GraphError, LayerError, Net
from caffejax.core.solver.intermediates import extract_features

NET = """
layer { name: "in" type: "Input" top: "x" input_param { shape { dim: 2 dim: 3 } } }
layer { name: "ip" type: "InnerProduct" bottom: "x" top: "ip"
        inner_product_param { num_output: 4 weight_filler { type: "gaussian" } } }
layer { name: "relu" type: "ReLU" bottom: "ip" top: "relu" }
"""
RECURRENT_NET = """
layer { name: "in" type: "Input" top: "x" top: "on"
        input_param { shape { dim: 1 dim: 2 dim: 3 } shape { dim: 1 dim: 2 } } }
layer { name: "rnn" type: "RNN" bottom: "x" bottom: "on" top: "h"
        recurrent_param { num_output: 2 weight_filler { type: "gaussian" } } }
"""
DROPOUT_NET = """
layer { name: "in" type: "Input" top: "x" input_param { shape { dim: 2 dim: 30 } } }
layer { name: "drop" type: "Dropout" bottom: "x" top: "y" }
"""
NET_WITH_INDICES = """
layer { name: "in" type: "Input" top: "x" top: "i" input_param { shape { dim: 4 dim: 3 } shape { dim: 4 } } }
layer { name: "pick" type: "BatchReindex" bottom: "x" bottom: "i" top: "y" }
"""


def compute_features(net: Net, blobs: Any, batches: Any) -> Iterator[Any]:
    return extract_features(net, net.init(jax.random.key(0)), blobs, batches)


def test_each_batch_is_a_forward_pass() -> None:
    net, rng = Net(NET), np.random.default_rng(0)
    batches = [{"x": rng.normal(size=(rows, 3)).astype(np.float32)} for rows in (2, 2, 5)]
    result = list(compute_features(net, ["relu", "ip"], batches))
    assert [set(blobs) for blobs in result] == [{"relu", "ip"}] * 3
    for batch, blobs in zip(batches, result, strict=True):
        expected, _ = net.apply(*net.init(jax.random.key(0)), batch, blobs=["ip"])
        np.testing.assert_allclose(blobs["ip"], expected["ip"], rtol=1e-6)
        np.testing.assert_allclose(blobs["relu"], np.maximum(expected["ip"], 0), rtol=1e-6)


def test_batches_are_read_lazily() -> None:
    batch_indices: list[int] = []

    def yield_batches() -> Iterator[dict[str, Any]]:
        while True:
            batch_indices.append(len(batch_indices))
            yield {"x": np.ones((2, 3), np.float32)}

    assert len(list(islice(compute_features(Net(NET), ["ip"], yield_batches()), 3))) == 3
    assert len(batch_indices) == 3


def test_recurrent_state_passes_to_the_next_batch() -> None:
    net = Net(RECURRENT_NET)
    steps = np.random.default_rng(0).normal(size=(3, 2, 3)).astype(np.float32)
    batches = [{"x": step[None], "on": np.full((1, 2), t > 0, np.float32)} for t, step in enumerate(steps)]
    result = [blobs["h"] for blobs in compute_features(net, ["h"], batches)]
    long_net = Net(RECURRENT_NET.replace("shape { dim: 1", "shape { dim: 3"))
    long_batch = {"x": steps, "on": np.concatenate([batch["on"] for batch in batches])}
    (expected,) = compute_features(long_net, ["h"], [long_batch])
    np.testing.assert_allclose(np.concatenate(result), expected["h"], rtol=1e-5, atol=1e-7)


def test_every_batch_has_a_different_key() -> None:
    net, batch = Net(DROPOUT_NET, "TRAIN"), {"x": np.ones((2, 30), np.float32)}
    first, second = (np.asarray(blobs["y"]) for blobs in compute_features(net, ["y"], [batch, batch]))
    assert (first != second).any()
    repeated, _ = (np.asarray(blobs["y"]) for blobs in compute_features(net, ["y"], [batch, batch]))
    np.testing.assert_array_equal(first, repeated)


def test_an_unknown_blob_is_named_at_once() -> None:
    with pytest.raises(GraphError, match="no blob 'rel' in the net; did you mean 'relu'"):
        compute_features(Net(NET), ["rel"], [])


def test_an_index_out_of_range_is_an_error_of_its_batch() -> None:
    valid_batch, invalid_batch = (
        {"x": np.ones((4, 3), np.float32), "i": np.array(i, np.float32)} for i in ([0, 1, 2, 3], [0, 4, 0, 0])
    )
    result = compute_features(Net(NET_WITH_INDICES), ["y"], [valid_batch, invalid_batch])
    assert np.isfinite(next(result)["y"]).all()
    with pytest.raises(LayerError, match=r"layer 'pick' \(BatchReindex\): index 4 at \[1\] of bottom 'i'"):
        next(result)
