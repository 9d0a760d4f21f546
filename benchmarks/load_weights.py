"""Measure the time and memory of loading a large .caffemodel into a net, beside reading the file.

python benchmarks/load_weights.py --megabytes 500

The file is random, written to a temporary folder, and in the page cache for both. Each is done in turn, several
times. Peak memory (Linux) is what the process's resident set grows by while loading, from what it was with the net's
variables in place; mapped pages of the file count.
"""

import argparse
import gc
import os
import platform
import statistics
import tempfile
import time
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import jax
import numpy as np
from competitor_server import read_memory

import caffejax

LAYERS = 8


def make_net_text(megabytes: int) -> str:
    """Return a chain of square InnerProduct layers of about this size in total."""
    width = int((megabytes * 1e6 / 4 / LAYERS) ** 0.5)
    text = f'layer {{ name: "data" type: "Input" top: "x" input_param {{ shape {{ dim: 1 dim: {width} }} }} }}\n'
    for i in range(LAYERS):
        text += (
            f'layer {{ name: "ip{i}" type: "InnerProduct" bottom: "x" top: "x" '
            f"inner_product_param {{ num_output: {width} }} }}\n"
        ).replace('bottom: "x" top: "x"', f'bottom: "{f"x{i - 1}" if i else "x"}" top: "x{i}"')
    return text


def time_call(function: Callable[[], Any]) -> float:
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def measure_peak_growth(function: Callable[[], Any]) -> int:
    """Return by how much the resident set grows at most while a function runs."""
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5")  # reset the peak
    memory_before = read_memory("VmRSS")
    result = function()
    peak = read_memory("VmHWM")
    del result
    return peak - memory_before


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=int, default=500)
    parser.add_argument("--repeat", type=int, default=7)
    options = parser.parse_args()
    caffejax.tune_process()
    net = caffejax.Net(make_net_text(options.megabytes))
    variables = net.init(jax.random.key(0))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "large.caffemodel"
        rng = np.random.default_rng(0)
        blobs = {k: {i: rng.random(b.shape, np.float32) for i, b in bs.items()} for k, bs in variables.params.items()}
        caffejax.save_weights(path, net.graph, caffejax.Variables(blobs, {}))
        size = path.stat().st_size
        first_values = {k: b["weight"][:1].copy() for k, b in blobs.items()}
        del blobs

        def load() -> Any:
            return jax.block_until_ready(caffejax.load_weights(path, net.graph, variables))

        loaded = load()  # and warms up
        assert all(np.array_equal(loaded.params[k]["weight"][:1], v) for k, v in first_values.items())
        del loaded
        read_times, load_times, peak_growths = [], [], []
        for _ in range(options.repeat):
            read_times.append(time_call(path.read_bytes))
            load_times.append(time_call(load))
        for _ in range(3):
            peak_growths.append(measure_peak_growth(load))
    print(f"caffejax {caffejax.__version__}, jax {jax.__version__}, numpy {np.__version__}, {date.today()}")
    print(
        f"{platform.machine()}, {os.cpu_count()} CPU cores, {jax.devices()[0].device_kind}; medians of {options.repeat}"
    )
    print(f"file           {size / 1e6:8.1f} MB")
    print(f"reading it     {statistics.median(read_times):8.3f} s   ({min(read_times):.3f} to {max(read_times):.3f})")
    print(f"loading it     {statistics.median(load_times):8.3f} s   ({min(load_times):.3f} to {max(load_times):.3f})")
    print(f"ratio          {statistics.median(load_times) / statistics.median(read_times):8.2f}")
    print(f"peak memory    {max(peak_growths) / 1e6:8.1f} MB  ({max(peak_growths) / size:.2f} x the file)")


if __name__ == "__main__":
    main()
