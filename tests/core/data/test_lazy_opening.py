"""Building a graph does not open data sources: a source is probed once, and opened at the first read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
import pytest

from caffejax import LayerDefinition, Net, SourceInput, SourceSpec, register
from caffejax.core.data.loader import Loader
from caffejax.core.layers.registry import _types

TOPS = (jax.ShapeDtypeStruct((2, 3), np.float32),)
TEXT = """
layer { name: "own" type: "TestSource" top: "x" }
layer { name: "ip" type: "InnerProduct" bottom: "x" top: "y" inner_product_param { num_output: 2 } }
"""


class CountingSource:
    """A source that counts its batches."""

    tops = TOPS

    def __init__(self) -> None:
        self.num_batches = 0

    def __next__(self) -> tuple[np.ndarray, ...]:
        self.num_batches += 1
        return (np.full((2, 3), self.num_batches, np.float32),)

    def get_state(self) -> int:
        return self.num_batches

    def set_state(self, state: int) -> None:
        self.num_batches = state

    def close(self) -> None:
        pass


@pytest.fixture
def calls() -> Iterator[list[str]]:
    """Record the calls of a source type from another package."""
    result: list[str] = []

    def probe(definition: LayerDefinition) -> SourceSpec:
        result.append(f"probe {definition.config.seed} {definition.phase}")
        return SourceSpec(TOPS, lambda x: (2 * x,))

    def open_source(definition: LayerDefinition, tops: Any) -> CountingSource:
        assert tops == TOPS
        result.append(f"open {definition.config.seed} {definition.phase}")
        return CountingSource()

    register("TestSource", SourceInput(probe, open_source), bottoms=0)
    yield result
    del _types["TestSource"]


def test_a_source_is_probed_once_and_opened_by_the_loader(calls: list[str]) -> None:
    net = Net(TEXT, "TRAIN", seed=7)
    assert calls == ["probe 7 TRAIN"]
    net.with_phase("TEST")
    assert calls == ["probe 7 TRAIN"]
    loader = Loader(net.graph)
    assert calls == ["probe 7 TRAIN", "open 7 TRAIN"]
    np.testing.assert_array_equal(next(loader)["x"], np.ones((2, 3)))
    values, _ = net.forward(*net.init(jax.random.key(0)), next(loader), blobs=("x",))
    np.testing.assert_array_equal(values["x"], np.full((2, 3), 4))  # the second batch, finished on the device
