"""Prefetching of shards: the batches that a pipeline reads after any takes and seeks."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from caffejax.base.config import DataShard, NetConfig, Options, resolve_options
from caffejax.base.errors import CaffejaxError
from caffejax.core.data import Batch, Pipeline
from caffejax.core.data.image_batches import ImageBatches
from caffejax.core.layers import LayerDefinition, type_of
from caffejax.core.layers.data_source import ShardedSource
from caffejax.core.schema import read_net

BATCH_SIZE = 5
TIMEOUT = 30  # seconds, for what should come at once


class RecordingBatches:
    """A batch holds the example that it starts at; which were read is noted."""

    tops = ()
    batch_size = BATCH_SIZE
    num_threads = 2

    def __init__(self) -> None:
        self.starts: list[int] = []
        self._lock = threading.Lock()

    def read(self, start: int) -> Batch:
        with self._lock:
            self.starts.append(start)
        return Batch((np.array(start),))

    def close(self) -> None:
        pass


@st.composite
def shard_partitions(draw: Any) -> list[DataShard]:
    """Shares that together are the whole."""
    counts = draw(st.lists(st.integers(1, 4), min_size=1, max_size=4))
    return [
        DataShard(first, n, sum(counts))
        for n, first in zip(counts, itertools.accumulate(counts, initial=0), strict=False)
    ]


@given(shard_partitions(), st.integers(0, 50), st.integers(0, 30))
def test_nth_counts_the_batches_of_a_shard(shards: list[DataShard], start: int, n: int) -> None:
    for shard in shards:
        # by counting
        batch_indices = (
            i for i in itertools.count(start) if i % shard.total in range(shard.first, shard.first + shard.count)
        )
        assert shard.nth(n, start) == next(itertools.islice(batch_indices, n, None))
        assert shard.owns(shard.nth(n, start))
    assert sum(shard.owns(start) for shard in shards) == 1


# the number of batches to take, or the example to seek to
steps = st.lists(
    st.one_of(st.tuples(st.just("take"), st.integers(1, 9)), st.tuples(st.just("seek"), st.integers(0, 200))),
    max_size=6,
)


@settings(max_examples=60)
@given(shard_partitions(), steps, st.integers(1, 4))
def test_shards_read_each_example_once_in_order(
    shards: list[DataShard], steps: list[tuple[str, int]], depth: int
) -> None:
    """Against counting, by hand; what is read ahead and never taken is the shard's, too."""
    next_example = 0
    readers = [(shard, batches := RecordingBatches(), Pipeline(batches, depth, shard=shard)) for shard in shards]
    for action, n in steps:
        if action == "seek":
            next_example = n
            for _, _, pipeline in readers:
                pipeline.set_state({"examples": n})
            continue
        for _ in range(n):
            taken_batches = [pipeline.take(pipeline.next_index) for _, _, pipeline in readers]
            starts = [int(arrays[0]) for arrays in taken_batches if arrays is not None]
            assert starts == [next_example]
            [owner] = [
                shard for (shard, _, _), arrays in zip(readers, taken_batches, strict=True) if arrays is not None
            ]
            assert owner.first <= next_example // BATCH_SIZE % owner.total < owner.first + owner.count
            next_example += BATCH_SIZE
        assert {pipeline.get_state()["examples"] for _, _, pipeline in readers} == {next_example}
    for shard, batches, pipeline in readers:
        pipeline.close()
        assert {start // BATCH_SIZE % shard.total for start in batches.starts} <= set(
            range(shard.first, shard.first + shard.count)
        )


@given(
    shard_partitions(), st.lists(st.sampled_from([1, 1, 1, 0, 2, 5]), max_size=20).map(np.cumsum).map(np.ndarray.tolist)
)
def test_the_batch_index_determines_the_shard(shards: list[DataShard], batch_indices: list[int]) -> None:
    """Numbers need not go up by 1: layers stand at different places, or one of them could not be read."""
    for shard in shards:
        pipeline = Pipeline(RecordingBatches(), 3, shard=shard)
        for i, batch_index in enumerate(batch_indices):
            arrays = pipeline.take(batch_index)
            is_local = shard.first <= batch_index % shard.total < shard.first + shard.count
            assert (None if arrays is None else int(arrays[0])) == (i * BATCH_SIZE if is_local else None)
        assert pipeline.get_state() == {"examples": len(batch_indices) * BATCH_SIZE}
        pipeline.close()


def test_a_pipeline_of_all_shards_reads_no_batch_twice() -> None:
    batches = RecordingBatches()
    pipeline = Pipeline(batches, 2)
    for batch_index in (3, 9, 2, 2):
        pipeline.take(batch_index)
        next(pipeline)
    pipeline.close()
    assert len(batches.starts) == len(set(batches.starts))


def test_a_pipeline_is_a_sharded_source() -> None:
    assert isinstance(Pipeline(RecordingBatches(), 1), ShardedSource)


@pytest.mark.parametrize("shard", [DataShard(), DataShard(1, 1, 2), DataShard(0, 3, 4)])
def test_prefetch_is_multiplied_by_the_shards_batches(
    shard: DataShard, monkeypatch: pytest.MonkeyPatch, data_layer_text: Callable[..., str], raw_db: Any
) -> None:
    starts: list[int] = []
    original_read = ImageBatches.read
    monkeypatch.setattr(ImageBatches, "read", lambda self, start: starts.append(start) or original_read(self, start))
    definition = LayerDefinition(
        read_net(data_layer_text(raw_db, data="backend: LMDB prefetch: 2")).layer[0],
        config=NetConfig(shard=shard),
    )
    implementation: Any = type_of(definition.layer).implementation
    source = implementation.open(definition, implementation.probe(definition).tops)
    next(source)
    expected_count, deadline = 1 + 2 * shard.count, time.monotonic() + TIMEOUT
    while len(starts) < expected_count and time.monotonic() < deadline:
        time.sleep(0.01)
    time.sleep(0.05)  # for what should not come
    source.close()
    assert len(starts) == expected_count


@pytest.mark.parametrize(
    ("values", "messages"),
    [
        ((-1, 1, 2), ["shard.first must be an integer of at least 0, not -1"]),
        ((0, 0, 2), ["shard.count must be an integer of at least 1, not 0"]),
        ((0, 1, 0), ["shard.total must be an integer of at least 1, not 0"]),
        ((1, 2, 2), ["shard: first + count must be at most total (2), but is 1 + 2"]),
        (
            (0, 1.0, True),
            [
                "shard.count must be an integer of at least 1, not 1.0",
                "shard.total must be an integer of at least 1, not True",
            ],
        ),
        (
            ("a", None, -3),
            [
                'shard.first must be an integer of at least 0, not "a"',
                "shard.count must be an integer of at least 1, not None",
                "shard.total must be an integer of at least 1, not -3",
            ],
        ),
    ],
)
def test_invalid_shards_are_refused(values: tuple[Any, Any, Any], messages: list[str]) -> None:
    with pytest.raises(CaffejaxError) as exc_info:
        DataShard(*values)
    assert [problem.message for problem in exc_info.value.problems] == messages


def test_options_cannot_set_or_change_the_shard() -> None:
    config = NetConfig(shard=DataShard(1, 1, 2))
    assert resolve_options(config, {"seed": 3}) == NetConfig(seed=3, shard=DataShard(1, 1, 2))
    assert "shard" not in Options.__annotations__
    with pytest.raises(CaffejaxError, match=r"^there is no option 'shard'; the options are "):
        resolve_options(config, {"shard": DataShard()})
    with pytest.raises(CaffejaxError, match=r"^shard must be a DataShard, not \(0, 1, 1\)$"):
        NetConfig(shard=(0, 1, 1))  # type: ignore[arg-type]
