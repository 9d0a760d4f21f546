"""Compare the time of each part of a net with its minimum time at this machine's peak rates.

    python benchmarks/roofline.py --threads 2
    python benchmarks/roofline.py --nets resnet50 --rounds 3 --json roofline.json

A part is all layers of a family (`summary.get_family`), forward or backward. Its limit is the larger of two times: its
operations at the rate of the best 1x1 convolution here, and its bytes at the rate of the best copy; both rates are
measured in the same run. Operations are those of plain convolutions: by Winograd's algorithm, which needs a half to a
quarter, a part can be faster than its limit. Bytes are those of bottoms, tops and params, each read or written once.
Layers are timed one by one, as `caffejax time` does. The rows "whole step" and "frozen" are of the net as one program,
which fuses layers: below them the limit counts convolutions and products alone, whose blobs no fusion avoids. Prints a
Markdown table.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from competitor_client import describe_run, format_head, format_headline, format_row
from training_competitor import BATCHES, CONFIGS, draw_variables

import caffejax
from caffejax import Net, Timer
from caffejax.core.graph import Layer
from caffejax.core.ops.window import Window
from caffejax.cpu.kernels import onednn
from caffejax.tools.summary.net_summary import summarize_layer

NETS = ("lenet", "cifar10_full", "caffenet", "googlenet", "squeezenet", "resnet50", "mobilenet")
FLOAT = 4  # bytes


@dataclass(frozen=True)
class Peak:
    """The peak rates of the machine: operations and bytes per second."""

    operations: float
    bytes: float

    def limit(self, operations: float, moved_bytes: float) -> float:
        """Return the minimum time of a part in milliseconds."""
        return 1e3 * max(operations / self.operations, moved_bytes / self.bytes)


@dataclass(frozen=True)
class Row:
    """A part of a net: milliseconds, operations and bytes of a pass, and its minimum time in milliseconds."""

    net: str
    batch: int
    part: str
    ms: float
    operations: float
    bytes: float
    limit: float


def measure_peak(rounds: int) -> Peak:
    """Time 1x1 convolutions of several shapes and a copy of 256 MiB; return the highest rates."""
    rates = []
    window = Window((1, 1), (1, 1), ((0, 0), (0, 0)), (1, 1))
    for size, channels in (56, 128), (28, 256), (28, 512), (14, 512):
        x, weight = jnp.ones((8, size, size, channels)), jnp.ones((channels, channels, 1, 1))
        convolve = jax.jit(lambda x, weight: onednn.convolution(x, weight, None, window))
        rates.append(2 * x.size * weight[0].size / time_best_run(lambda f=convolve, x=x, w=weight: f(x, w), rounds))
    array, double_array = jnp.ones(1 << 25), jax.jit(lambda a: a * 2)
    return Peak(max(rates), 2 * array.nbytes / time_best_run(lambda: double_array(array), rounds))


def time_best_run(run: Callable[[], Any], rounds: int) -> float:
    jax.block_until_ready(run())

    def time_run() -> float:
        start_time = time.perf_counter()
        jax.block_until_ready(run())
        return time.perf_counter() - start_time

    return min(time_run() for _ in range(3 * rounds))


def list_passes(layer: Layer, net: Net) -> Iterator[tuple[str, float, float]]:
    """Yield direction, operations and bytes of a layer's forward and backward pass."""
    summary, blobs = summarize_layer(layer, net.graph), net.graph.blobs
    bottoms, tops = (FLOAT * sum(math.prod(blobs[n].shape) for n in names) for names in (layer.bottoms, layer.tops))
    params = FLOAT * sum(math.prod(shape) for shape in summary.param_shapes)
    operations = 2.0 * (summary.multiply_adds or 0)
    yield "forward", operations, bottoms + tops + params
    yield "backward", operations * (2 if layer.params else 1), 2 * bottoms + tops + 2 * params


def measure_net(name: str, peak: Peak, rounds: int) -> Iterator[Row]:
    """Time a net, and yield its rows."""
    batch = BATCHES[name]
    net = Net(CONFIGS / name / "train_val.prototxt", "TRAIN").with_batch(batch)
    timer = Timer(net, draw_variables(net), jax.random.key(0))
    timer.time_layers()
    timer.time_net()
    passes, net_passes = zip(*[(timer.time_layers(), timer.time_net()) for _ in range(rounds)], strict=True)
    timer.close()
    compute_median = lambda values: statistics.median(list(values))  # noqa: E731
    layers = {layer.name: layer for layer in net.graph.layers if not layer.type.is_input}
    sums: dict[tuple[str, str], list[float]] = defaultdict(lambda: [0.0] * 4)
    for times in zip(*passes, strict=True):
        layer = layers.get(times[0].name)
        for direction, operations, moved_bytes in list_passes(layer, net) if layer else ():
            ms = compute_median(getattr(t, direction) for t in times)
            if ms > 0:
                key = summarize_layer(layer, net.graph).family, direction
                values = ms, operations, moved_bytes, peak.limit(operations, moved_bytes)
                sums[key] = [a + b for a, b in zip(sums[key], values, strict=True)]
    sorted_parts = sorted(sums, key=lambda key: sums[key][3] - sums[key][0])  # the most time above the limit first
    for family, direction in sorted_parts:
        yield Row(name, batch, f"{family}, {direction}", *sums[family, direction])
    weighted_parts = [key for key in sums if key[0] in ("convolution", "product")]
    step_totals = [sum(sums[key][i] for key in weighted_parts) for i in range(1, 4)]
    yield Row(name, batch, "whole step", compute_median(w.both for w in net_passes), *step_totals)
    inference_net = Net(CONFIGS / name / "train_val.prototxt").for_inference().with_batch(batch)
    frozen = inference_net.freeze(draw_variables(inference_net))
    inputs = {n: jnp.ones(inference_net.graph.blobs[n].shape) for n in inference_net.input_names}
    forward_totals = [sum(sums[key][i] for key in weighted_parts if key[1] == "forward") for i in range(1, 4)]
    yield Row(name, batch, "frozen", 1e3 * time_best_run(lambda: frozen(inputs), rounds), *forward_totals)


def format_cells(row: Row) -> list[str]:
    rate = row.operations / row.ms / 1e6
    return [
        f"{row.net} ({row.batch})",
        row.part,
        f"{row.ms:.3g}",
        f"{row.operations / 1e9:.3g}",
        f"{row.bytes / 1e6:.3g}",
        f"{row.limit:.3g}",
        f"{row.limit / row.ms:.0%}",
        f"{rate:.0f}",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nets", type=lambda text: text.split(","), default=list(NETS))
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all that was measured")
    options = parser.parse_args()
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: options.threads])
    os.environ["OMP_NUM_THREADS"] = str(options.threads)
    jax.config.update("jax_platforms", "cpu")
    caffejax.tune_process()
    run = describe_run(options, {"caffejax": caffejax.__version__})
    print(f"{format_headline(run)}\n")
    peak = measure_peak(options.rounds)
    print(f"Best convolution: {peak.operations / 1e9:.0f} GFLOP/s; best copy: {peak.bytes / 1e9:.1f} GB/s.\n")
    print(format_head(["net (batch)", "part", "ms", "GFLOP", "MB", "limit, ms", "limit / time", "GFLOP/s"]))
    rows = []
    for name in options.nets:
        for row in measure_net(name, peak, options.rounds):
            rows.append(row)
            print(format_row(format_cells(row)), flush=True)
    if options.json:
        result = {"run": run, "peak": asdict(peak), "rows": list(map(asdict, rows))}
        options.json.write_text(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
