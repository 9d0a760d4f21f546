"""Compare caffejax and PyTorch on the same nets: inference at batch 1 and at the net's batch, and a training step.

    python benchmarks/against_torch.py [--nets lenet,resnet50] [--rounds 9] [--kernels fast,reference]

Each competitor is a process of its own with the same number of threads; all run once per round, in turn, so other load
on the machine falls on all alike. Of PyTorch's forms (eager, channels_last, torch.compile of that) the fastest
counts. That the nets are the same is checked: outputs and losses must agree. Prints milliseconds (medians) and
ratios PyTorch / caffejax (medians over rounds; more than 1: caffejax is faster); of caffejax also the seconds of the
first run (tracing and compiling) without and with a compilation cache, the milliseconds that the host needs to start
one, and of it and of PyTorch's best the MiB that running takes beside what was there before.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.metadata
import json
import os
import statistics
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from competitor_client import (
    Competitor,
    describe_run,
    format_head,
    format_headline,
    format_row,
    median_ratio,
    start_with_filled_cache,
    time_in_turns,
)
from training_competitor import BATCHES, CONFIGS, TORCH_MODES, choose_batch

TASKS = ("forward 1", "forward", "step")
LARGE = ("resnet152", "ssd300", "mobilenet_ssd")  # only if named


def make_command(name: str, task: str, mode: str, threads: int) -> list[str]:
    return [sys.executable, "training_competitor.py", name, task, mode, str(threads)]


@contextlib.contextmanager
def start_competitors(
    name: str, task: str, options: argparse.Namespace
) -> Iterator[tuple[dict[str, Competitor], dict[str, float]]]:
    """Start all competitors; return them, and the seconds of caffejax's first run without a cache."""
    competitors: dict[str, Competitor] = {}
    cold_seconds = {}
    with tempfile.TemporaryDirectory() as folder:
        for mode in options.kernels:
            command = make_command(name, task, mode, options.threads)
            cold_seconds[mode], competitors[mode] = start_with_filled_cache(command, options.threads, Path(folder))
        for mode in options.torch:
            try:
                competitors[mode] = Competitor(make_command(name, task, mode, options.threads), options.threads)
            except RuntimeError:
                print(f"  torch {mode} does not run here", file=sys.stderr)
        try:
            yield competitors, cold_seconds
        finally:
            for competitor in competitors.values():
                competitor.process.kill()


def has_dropout(name: str) -> bool:
    """Return whether the net has dropout: its losses are random then, because each library draws its own numbers."""
    return '"Dropout"' in (CONFIGS / name / "train_val.prototxt").read_text()


def compare(name: str, task: str, options: argparse.Namespace) -> dict[str, Any]:
    """Measure a task; return the measurements as JSON values."""
    with start_competitors(name, task, options) as (competitors, cold_seconds):
        for mode, competitor in competitors.items():
            expected = competitors[options.kernels[0]].result
            rtol = 0.3 if task == "step" and has_dropout(name) else 5e-3
            np.testing.assert_allclose(competitor.result, expected, rtol=rtol, atol=1e-5, err_msg=f"{name}, {mode}")
        times = time_in_turns(competitors, options.rounds)
        end_results = {mode: competitor.end() for mode, competitor in competitors.items()}
    medians = {mode: statistics.median(t) for mode, t in times.items()}
    torch_modes = [mode for mode in competitors if mode in TORCH_MODES]
    best = min(torch_modes, key=medians.__getitem__) if torch_modes else None
    return {
        "net": name,
        "task": task,
        "batch": choose_batch(name, task),
        "ms": medians,
        "best": best,
        "ratio": {mode: median_ratio(times[best], times[mode]) if best else None for mode in options.kernels},
        "first": {mode: {"cold": cold_seconds[mode], "cached": competitors[mode].first} for mode in options.kernels},
        "end": end_results,
    }


def format_result(result: Mapping[str, Any], options: argparse.Namespace) -> dict[str, str]:
    """Return a row of the table, keyed by column."""
    ms, end_results, best = (result[name] for name in ("ms", "end", "best"))
    row = {"net": result["net"], "task": f"{result['task'].split()[0]} ({result['batch']})"}
    row |= {mode: f"{ms[mode]:.2f}" if mode in ms else "-" for mode in (*options.kernels, *options.torch)}
    for mode in options.kernels:
        suffix = "" if len(options.kernels) == 1 else f" of {mode}"
        first, speedup = result["first"][mode], result["ratio"][mode]
        row |= {f"ratio{suffix}": f"{speedup:.2f}" if best else "-"}
        row |= {f"first{suffix}, s": f"{first['cold']:.1f} / {first['cached']:.1f}"}
        row |= {
            f"host{suffix}, ms": f"{end_results[mode]['host']:.2f}",
            f"MiB{suffix}": f"{end_results[mode]['peak']:.0f}",
        }
    return row | {"PyTorch's MiB": f"{end_results[best]['peak']:.0f}" if best else "-"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    split = lambda text: [s for s in text.split(",") if s]  # noqa: E731
    parser.add_argument("--nets", type=split, default=[n for n in BATCHES if n not in LARGE])
    parser.add_argument("--tasks", type=split, default=list(TASKS))
    parser.add_argument("--kernels", type=split, default=["fast"], help="implementations of ours: fast,reference")
    parser.add_argument("--torch", type=split, default=list(TORCH_MODES))
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all that was measured")
    options = parser.parse_args()
    run = describe_run(options, {name: importlib.metadata.version(name) for name in ("jax", "jaxlib", "torch")})
    print(f"{format_headline(run)}\n")
    rows = []
    for name in options.nets:
        for task in options.tasks:
            rows.append(compare(name, task, options))
            row = format_result(rows[-1], options)
            if len(rows) == 1:
                print(format_head(row))
            print(format_row(row.values()), flush=True)
    print("\nGeometric means of the ratios:", end=" ")
    mode = options.kernels[0]
    ratios = {
        task: [row["ratio"][mode] for row in rows if row["task"] == task and row["best"]] for task in options.tasks
    }
    print(", ".join(f"{task} {statistics.geometric_mean(r):.2f}" for task, r in ratios.items() if r))
    if options.json:
        options.json.write_text(json.dumps({"run": run, "rows": rows}, indent=1))


if __name__ == "__main__":
    main()
