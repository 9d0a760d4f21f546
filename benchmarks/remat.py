"""Measure memory and time of training steps with and without recomputation.

    python benchmarks/remat.py [--model FILE] [--memory_limit 4GiB] [--without 22,24] [--auto 44] [--steps 3]

Every batch size is a process of its own. Prints what XLA says that the compiled step takes (arguments and temporary
memory), the process's peak (resident, compiling included), seconds per step (median, the first left out) and the loss
of the first step. Where XLA's figure passes the limit, which is what `remat="auto"` is given to keep, that is marked.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from training_competitor import make_training_step

from caffejax import Net, tune_process
from caffejax.base.human_readable import format_bytes, parse_bytes

MODEL = Path(__file__).parents[1] / "configs" / "resnet152" / "train_val.prototxt"


def train(net: Net, batch: int, steps: int) -> dict[str, Any]:
    """Train some steps on random data; return bytes by XLA and by the system, seconds, and the first loss."""
    state, step = make_training_step(net, net.init(jax.random.key(0)))
    rng, shape = np.random.default_rng(0), net.graph.blobs["data"].shape[1:]
    data = rng.standard_normal((1, batch, *shape), np.float32)
    batches = {"data": jnp.asarray(data), "label": jnp.arange(batch, dtype=jnp.float32)[None] % 10}
    compiled = net.jit(step, donate_argnums=0).lower(state, batches, 0.001).compile()
    analysis, seconds, losses = compiled.memory_analysis(), [], []
    for _ in range(steps):
        start = time.perf_counter()
        state, step_result = compiled(state, batches, 0.001)
        losses.append(float(jax.block_until_ready((step_result.loss, state.params))[0]))
        seconds.append(time.perf_counter() - start)
    return {
        "xla": analysis.argument_size_in_bytes + analysis.temp_size_in_bytes,
        "peak": 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss,
        "seconds": statistics.median(seconds[1:] or seconds),
        "loss": losses[0],
    }


def parse_sizes(text: str) -> list[int]:
    return [int(part) for part in text.split(",") if part]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, default=MODEL)
    parser.add_argument("--memory_limit", type=parse_bytes, default=parse_bytes("4GiB"))
    parser.add_argument(
        "--without", type=parse_sizes, default=[22, 24], help="batch sizes to run without recomputation"
    )
    parser.add_argument("--auto", type=parse_sizes, default=[44], help="batch sizes to run with it")
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--one", nargs=2, metavar=("REMAT", "BATCH"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        tune_process()
        remat, batch = options.one
        net = Net(options.model, "TRAIN", remat=remat, memory_limit=options.memory_limit)
        print(json.dumps(train(net, int(batch), options.steps)))
        return
    print("| batch | remat | XLA | peak | s per step | ms per image | loss |\n|---|---|---|---|---|---|---|")
    for remat, batch in [*(("none", b) for b in options.without), *(("auto", b) for b in options.auto)]:
        command = [sys.executable, __file__, *sys.argv[1:], "--one", remat, str(batch)]
        process = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
        result = json.loads(process.stdout.splitlines()[-1])
        limit_mark = " (over)" if result["xla"] > options.memory_limit else ""
        cells = [
            batch,
            remat,
            format_bytes(result["xla"]) + limit_mark,
            format_bytes(result["peak"]),
            f"{result['seconds']:.1f}",
        ]
        print(
            "|",
            *[f"{c} |" for c in cells],
            f"{1000 * result['seconds'] / batch:.0f} | {result['loss']:.5f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
