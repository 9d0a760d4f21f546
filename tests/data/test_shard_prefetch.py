"""Shares, and reading ahead of them: which batches a pipeline reads, whatever is taken and wherever it goes."""

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

from caffejax.config import ComputeConfig, DataConfig, DataShard, Options, resolve_options
from caffejax.data import Batch, Pipeline
from caffejax.data.image_batches import ImageBatches
from caffejax.errors import CaffejaxError
from caffejax.layers import LayerDefinition, layer_type
from caffejax.layers.data_source import ShardedSource
from caffejax.schema import read_net

SIZE = 5
PATIENCE = 30  # seconds, for what should come at once


class RecordedStarts:
    """A batch holds the example that it starts at; which were read is noted."""

    tops = ()
    batch_size = SIZE
    num_threads = 2

    def __init__(self) -> None:
        self.read_at: list[int] = []
        self._lock = threading.Lock()

    def read(self, start: int) -> Batch:
        with self._lock:
            self.read_at.append(start)
        return Batch((np.array(start),))

    def close(self) -> None:
        pass


@st.composite
def partitions(draw: Any) -> list[DataShard]:
    """Shares that together are the whole."""
    counts = draw(st.lists(st.integers(1, 4), min_size=1, max_size=4))
    return [
        DataShard(first, n, sum(counts))
        for n, first in zip(counts, itertools.accumulate(counts, initial=0), strict=False)
    ]


@given(partitions(), st.integers(0, 50), st.integers(0, 30))
def test_nth_counts_the_batches_of_a_shard(parts: list[DataShard], start: int, n: int) -> None:
    for shard in parts:
        # by counting
        numbers = (
            i for i in itertools.count(start) if i % shard.total in range(shard.first, shard.first + shard.count)
        )
        assert shard.nth(n, start) == next(itertools.islice(numbers, n, None))
        assert shard.owns(shard.nth(n, start))
    assert sum(shard.owns(start) for shard in parts) == 1


# how many batches to take, or the example to go to
steps = st.lists(
    st.one_of(st.tuples(st.just("take"), st.integers(1, 9)), st.tuples(st.just("go"), st.integers(0, 200))), max_size=6
)


@settings(max_examples=60)
@given(partitions(), steps, st.integers(1, 4))
def test_shards_read_each_example_once_in_order(
    parts: list[DataShard], steps: list[tuple[str, int]], depth: int
) -> None:
    """Against counting, by hand; what is read ahead and never taken is the shard's, too."""
    example = 0
    readers = [(shard, batches := RecordedStarts(), Pipeline(batches, depth, shard=shard)) for shard in parts]
    for action, n in steps:
        if action == "go":
            example = n
            for _, _, pipeline in readers:
                pipeline.set_state({"examples": n})
            continue
        for _ in range(n):
            taken_batches = [pipeline.take(pipeline.next_index) for _, _, pipeline in readers]
            starts = [int(arrays[0]) for arrays in taken_batches if arrays is not None]
            assert starts == [example]
            [owner] = [
                shard for (shard, _, _), arrays in zip(readers, taken_batches, strict=True) if arrays is not None
            ]
            assert owner.first <= example // SIZE % owner.total < owner.first + owner.count
            example += SIZE
        assert {pipeline.get_state()["examples"] for _, _, pipeline in readers} == {example}
    for shard, batches, pipeline in readers:
        pipeline.close()
        assert {start // SIZE % shard.total for start in batches.read_at} <= set(
            range(shard.first, shard.first + shard.count)
        )


@given(partitions(), st.lists(st.sampled_from([1, 1, 1, 0, 2, 5]), max_size=20).map(np.cumsum).map(np.ndarray.tolist))
def test_the_numbers_that_batches_count_as_decide(parts: list[DataShard], numbers: list[int]) -> None:
    """Numbers need not go up by 1: layers stand at different places, or one of them could not be read."""
    for shard in parts:
        pipeline = Pipeline(RecordedStarts(), 3, shard=shard)
        for i, number in enumerate(numbers):
            arrays = pipeline.take(number)
            is_owned = shard.first <= number % shard.total < shard.first + shard.count
            assert (None if arrays is None else int(arrays[0])) == (i * SIZE if is_owned else None)
        assert pipeline.get_state() == {"examples": len(numbers) * SIZE}
        pipeline.close()


def test_no_batch_is_read_twice_whatever_numbers_one_reader_of_all_is_given() -> None:
    batches = RecordedStarts()
    pipeline = Pipeline(batches, 2)
    for number in (3, 9, 2, 2):
        pipeline.take(number)
        next(pipeline)
    pipeline.close()
    assert len(batches.read_at) == len(set(batches.read_at))


def test_a_pipeline_is_a_shared_source() -> None:
    assert isinstance(Pipeline(RecordedStarts(), 1), ShardedSource)


@pytest.mark.parametrize("shard", [DataShard(), DataShard(1, 1, 2), DataShard(0, 3, 4)])
def test_prefetch_is_for_each_batch_that_is_taken_at_a_time(
    shard: DataShard, monkeypatch: pytest.MonkeyPatch, data_layer: Callable[..., str], raw_db: Any
) -> None:
    starts: list[int] = []
    original_read = ImageBatches.read
    monkeypatch.setattr(ImageBatches, "read", lambda self, start: starts.append(start) or original_read(self, start))
    definition = LayerDefinition(
        read_net(data_layer(raw_db, data="backend: LMDB prefetch: 2")).layer[0], data_config=DataConfig(shard=shard)
    )
    implementation: Any = layer_type("Data").implementation
    source = implementation.open(definition, implementation.probe(definition).tops)
    next(source)
    expected, end = 1 + 2 * shard.count, time.monotonic() + PATIENCE
    while len(starts) < expected and time.monotonic() < end:
        time.sleep(0.01)
    time.sleep(0.05)  # for what should not come
    source.close()
    assert len(starts) == expected


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


def test_shard_is_no_keyword_and_keywords_do_not_change_it() -> None:
    data_config = DataConfig(shard=DataShard(1, 1, 2))
    assert resolve_options(ComputeConfig(), data_config, {"seed": 3})[1] == DataConfig(seed=3, shard=DataShard(1, 1, 2))
    assert "shard" not in Options.__annotations__
    with pytest.raises(CaffejaxError, match=r"^there is no option 'shard'$"):
        resolve_options(ComputeConfig(), data_config, {"shard": DataShard()})
    with pytest.raises(CaffejaxError, match=r"^shard must be a DataShard, not \(0, 1, 1\)$"):
        DataConfig(shard=(0, 1, 1))  # type: ignore[arg-type]
