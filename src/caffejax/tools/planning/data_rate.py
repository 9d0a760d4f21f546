"""The examples per second that this host reads from the sources of a net's data layers."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ...base.errors import CaffejaxError
from ...base.host_memory import count_available_cores
from ...core.data.prefetch import Pipeline
from ...core.program.net import Net
from ...core.schema.caffe_pb2 import LayerParameter

# Figures of benchmarks/data_loading.py on two cores. Raw images of 32x32 show the time that each image takes in one
# thread besides decoding; JPEGs of 256x256 show the pixels that each core decodes.
SECONDS_PER_IMAGE = 1 / 143_000
JPEG_PIXELS_PER_SECOND = 1_650 * 256 * 256

_MIN_SECONDS = 0.5  # the least duration of a measurement after its first batches


@dataclass(frozen=True)
class DataRate:
    """How fast this host reads the data of a net.

    Attributes:
        examples_per_second: the examples that the host reads per second; None if they cannot be read.
        cores: the number of cores that this process may use.
        is_measured: True if the sources were read, False if the rate is an estimate because they are absent.
        problem: why the sources cannot be read, in one line, or None.
    """

    examples_per_second: float | None
    cores: int
    is_measured: bool = True
    problem: str | None = None


def estimate_data_rate(net: Net, batch_axis: int = 0, absent_layers: Sequence[LayerParameter] = ()) -> DataRate | None:
    """Read a few batches of a net's data layers, for about a second, in the threads in which training reads.

    Sources that are absent cannot be read. For them, the rate is estimated for JPEGs of the size of the layer's first
    top, from figures of another host for each core. Raw images are read faster, and larger images slower.

    Args:
        net: the net.
        batch_axis: the batch axis of the inputs. Its length in the first input is the number of examples in a batch.
        absent_layers: the data layers whose sources are absent. In the net, Input layers have their names and tops.

    Returns:
        The rate, or None for a net without data layers, and for a net of which a Python layer, or a layer that reads
        arrays from memory, provides data.
    """
    cores = count_available_cores()
    if absent_layers:
        seconds = sum(_estimate_jpeg_seconds(net, layer, cores) for layer in absent_layers)
        return DataRate(_count_examples(net, batch_axis) / seconds, cores, is_measured=False)
    try:
        sources = net.sources().values()
        pipelines = [source for source in sources if isinstance(source, Pipeline)]
        if not sources or len(pipelines) < len(sources):
            return None
        return DataRate(_count_examples(net, batch_axis) / _measure_seconds(pipelines), cores)
    except CaffejaxError as error:
        return DataRate(None, cores, problem=str(error).splitlines()[0])


def _count_examples(net: Net, batch_axis: int) -> int:
    return int(net.graph.blobs[net.input_names[0]].shape[batch_axis])


def _estimate_jpeg_seconds(net: Net, layer: LayerParameter, cores: int) -> float:
    num_images, _, *size = net.graph.blobs[layer.top[0]].shape
    num_threads = min(cores, layer.data_param.prefetch)
    return num_images * (SECONDS_PER_IMAGE + math.prod(size) / (JPEG_PIXELS_PER_SECOND * num_threads))


def _measure_seconds(pipelines: Sequence[Pipeline]) -> float:
    """Return the seconds in which each source reads a batch. The sources are closed."""
    try:
        # Threads read a batch each, so batches arrive in groups of this size. A part of a group would be too fast.
        group_size = max(1, *(pipeline.num_threads for pipeline in pipelines))
        _read_batches(pipelines, group_size)  # opens files, fills caches
        start_time, num_batches, seconds = time.perf_counter(), 0, 0.0
        while seconds < _MIN_SECONDS:
            _read_batches(pipelines, group_size)
            num_batches += group_size
            seconds = time.perf_counter() - start_time
    finally:
        for pipeline in pipelines:
            pipeline.close()
    return seconds / num_batches


def _read_batches(pipelines: Iterable[Pipeline], count: int) -> None:
    for _ in range(count):
        for pipeline in pipelines:
            next(pipeline)
