"""caffejax and PyTorch on the same nets: inference at batch 1 and at the net's batch, and a training step.

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
from interleaving import (
    Competitor,
    describe_run,
    format_head,
    format_headline,
    format_row,
    median_ratio,
    start_with_filled_cache,
    time_in_turns,
)
from training_competitor import BATCHES, CONFIGS, TORCH_FORMS, batch_of

TASKS = ("forward 1", "forward", "step")
LARGE = ("resnet152", "ssd300", "mobilenet_ssd")  # only if named


def command_of(name: str, task: str, form: str, threads: int) -> list[str]:
    return [sys.executable, "training_competitor.py", name, task, form, str(threads)]


@contextlib.contextmanager
def start_competitors(
    name: str, task: str, options: argparse.Namespace
) -> Iterator[tuple[dict[str, Competitor], dict[str, float]]]:
    """Start all competitors; give them, and the seconds of the first run of ours without a cache."""
    ready: dict[str, Competitor] = {}
    cold = {}
    with tempfile.TemporaryDirectory() as folder:
        for form in options.kernels:
            command = command_of(name, task, form, options.threads)
            cold[form], ready[form] = start_with_filled_cache(command, options.threads, Path(folder))
        for form in options.torch:
            try:
                ready[form] = Competitor(command_of(name, task, form, options.threads), options.threads)
            except RuntimeError:
                print(f"  torch {form} does not run here", file=sys.stderr)
        try:
            yield ready, cold
        finally:
            for competitor in ready.values():
                competitor.process.kill()


def has_dropout(name: str) -> bool:
    """Return whether losses of the net are random: each library draws for itself."""
    return '"Dropout"' in (CONFIGS / name / "train_val.prototxt").read_text()


def compare(name: str, task: str, options: argparse.Namespace) -> dict[str, Any]:
    """Measure a task; return what was measured, as JSON values."""
    with start_competitors(name, task, options) as (ready, cold):
        for form, competitor in ready.items():
            expected, rtol = ready[options.kernels[0]].result, 0.3 if task == "step" and has_dropout(name) else 5e-3
            np.testing.assert_allclose(competitor.result, expected, rtol=rtol, atol=1e-5, err_msg=f"{name}, {form}")
        times = time_in_turns(ready, options.rounds)
        ends = {form: competitor.end() for form, competitor in ready.items()}
    medians = {form: statistics.median(t) for form, t in times.items()}
    torch = [form for form in ready if form in TORCH_FORMS]
    best = min(torch, key=medians.__getitem__) if torch else None
    return {
        "net": name,
        "task": task,
        "batch": batch_of(name, task),
        "ms": medians,
        "best": best,
        "ratio": {form: median_ratio(times[best], times[form]) if best else None for form in options.kernels},
        "first": {form: {"cold": cold[form], "cached": ready[form].first} for form in options.kernels},
        "end": ends,
    }


def format_result(result: Mapping[str, Any], options: argparse.Namespace) -> dict[str, str]:
    """Return a row of the table, by column."""
    ms, ends, best = (result[name] for name in ("ms", "end", "best"))
    row = {"net": result["net"], "task": f"{result['task'].split()[0]} ({result['batch']})"}
    row |= {form: f"{ms[form]:.2f}" if form in ms else "-" for form in (*options.kernels, *options.torch)}
    for form in options.kernels:
        suffix = "" if len(options.kernels) == 1 else f" of {form}"
        first, speedup = result["first"][form], result["ratio"][form]
        row |= {f"ratio{suffix}": f"{speedup:.2f}" if best else "-"}
        row |= {f"first{suffix}, s": f"{first['cold']:.1f} / {first['cached']:.1f}"}
        row |= {f"host{suffix}, ms": f"{ends[form]['host']:.2f}", f"MiB{suffix}": f"{ends[form]['peak']:.0f}"}
    return row | {"PyTorch's MiB": f"{ends[best]['peak']:.0f}" if best else "-"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    split = lambda text: [s for s in text.split(",") if s]  # noqa: E731
    parser.add_argument("--nets", type=split, default=[n for n in BATCHES if n not in LARGE])
    parser.add_argument("--tasks", type=split, default=list(TASKS))
    parser.add_argument("--kernels", type=split, default=["fast"], help="implementations of ours: fast,reference")
    parser.add_argument("--torch", type=split, default=list(TORCH_FORMS))
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
    form = options.kernels[0]
    ratios = {
        task: [row["ratio"][form] for row in rows if row["task"] == task and row["best"]] for task in options.tasks
    }
    print(", ".join(f"{task} {statistics.geometric_mean(r):.2f}" for task, r in ratios.items() if r))
    if options.json:
        options.json.write_text(json.dumps({"run": run, "rows": rows}, indent=1))


if __name__ == "__main__":
    main()
