"""Compare this checkout with another commit: training steps, calls of frozen nets, and start-up.

    python benchmarks/against_commit.py HEAD~1
    python benchmarks/against_commit.py v0.1 --nets lenet,resnet50 --tasks step --rounds 9 --json result.json

The other commit is checked out into a temporary folder, and its kernels are compiled there; those of this checkout
must be up to date (`pip install -e .`). Both run in the same environment, on the same files, each in a process of its
own, in turn, so other load on the machine falls on both alike. Start-up is the time from the start of a fresh process
to the first result of a frozen net, or to the end of the first training step, with a filled compilation cache.

Prints medians and ratios, this checkout / the commit (medians over rounds; more than 1: this checkout is slower). What
is above `--limit` is measured again with `--confirm` rounds, and that counts; what stays above ends in exit code 1.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from cold_start_nets import find_nets, write_inference, write_training
from competitor_client import (
    FOLDER,
    Competitor,
    describe_run,
    format_head,
    format_headline,
    format_row,
    median_ratio,
    time_in_turns,
)

ROOT = FOLDER.parent
NETS = ("lenet", "googlenet", "resnet50", "ssd300")
TABLE_NETS = ("lenet", "cifar10_full", "alexnet", "googlenet", "squeezenet", "resnet50", "mobilenet")
TASKS = ("step", "frozen", "start step", "start frozen")
JOB_OF = {"start step": "solver", "start frozen": "frozen"}  # names of cold_start_process
Times = dict[str, list[float]]  # milliseconds of each round, by checkout


@contextlib.contextmanager
def check_out(commit: str) -> Iterator[Path]:
    """Check out a commit into a temporary folder and compile its kernels; yield its `src`."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "checkout"
        git = ["git", "-C", str(ROOT), "worktree"]
        subprocess.run([*git, "add", "--quiet", "--detach", str(folder), commit], check=True)
        try:
            build = [sys.executable, "setup.py", "--quiet", "build_ext", "--inplace"]
            process = subprocess.run(build, cwd=folder, capture_output=True, text=True, check=False)
            if process.returncode:
                raise SystemExit(f"the kernels of {commit} do not compile:\n{process.stderr[-2000:]}")
            yield folder / "src"
        finally:
            subprocess.run([*git, "remove", "--force", str(folder)], check=True)


def command_of(source: Path, script: str, *arguments: str) -> list[str]:
    """Return the command that runs a script of this folder with the package of `source`."""
    return ["env", f"PYTHONPATH={source}", sys.executable, str(FOLDER / script), *arguments]


def time_repeated(task: str, folder: Path, sources: Mapping[str, Path], rounds: int, threads: int) -> Times:
    """Time steps or calls of processes that live on; both must give the same numbers."""
    competitors: dict[str, Competitor] = {}
    try:
        for label, source in sources.items():
            command = command_of(source, "commit_competitor.py", task, str(folder))
            competitors[label] = Competitor(command, threads, folder / f"cache {label}")
        this, other = (competitor.result for competitor in competitors.values())
        scale = max(abs(other).max(), 1e-30)
        if not abs(this - other).max() <= 1e-3 * scale:
            print(f"{task}: results differ by {abs(this - other).max() / scale:.1e} of the largest value")
        return time_in_turns(competitors, rounds)
    finally:
        for competitor in competitors.values():
            competitor.process.kill()
            competitor.process.wait()


def time_starts(task: str, folder: Path, sources: Mapping[str, Path], rounds: int, threads: int) -> Times:
    """Time fresh processes until their first result; a first run fills the cache and is not counted."""
    times: Times = {label: [] for label in sources}
    for round_number in range(rounds + 1):
        for label, source in sources.items():
            arguments = [repr(time.monotonic()), "first", "0", str(threads)]
            process = subprocess.run(
                command_of(source, "cold_start_process.py", JOB_OF[task], str(folder), *arguments),
                env=os.environ | {"OMP_NUM_THREADS": str(threads), "CAFFEJAX_CACHE": str(folder / f"cache {label}")},
                cwd=FOLDER,
                capture_output=True,
                text=True,
                check=False,
            )
            if process.returncode:
                raise SystemExit(f"{task}: {label} fails:\n{process.stderr[-2000:]}")
            if round_number:
                times[label].append(1000 * json.loads(process.stdout.splitlines()[-1])["first"])
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    split_commas = lambda text: [s for s in text.split(",") if s]  # noqa: E731
    parser.add_argument("commit", help="what git calls it: a hash, a tag, HEAD~3")
    parser.add_argument(
        "--nets", type=split_commas, default=list(NETS), help=f"names; 'all' for {','.join(TABLE_NETS)} and ssd300"
    )
    parser.add_argument("--tasks", type=split_commas, default=list(TASKS), help=", ".join(TASKS))
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--confirm", type=int, default=21, metavar="ROUNDS", help="for what is above the limit")
    parser.add_argument("--limit", type=float, default=1.03)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all times")
    options = parser.parse_args()
    if unknown := set(options.tasks) - set(TASKS):
        parser.error(f"--tasks: {', '.join(sorted(unknown))}: there are {', '.join(TASKS)}")
    os.environ["JAX_PLATFORMS"] = "cpu"
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: options.threads])  # competitors inherit it
    run = describe_run(options, {})
    print(format_headline(run), flush=True)
    names = [*TABLE_NETS, "ssd300"] if options.nets == ["all"] else options.nets
    results, num_slower = [], 0
    print(format_head(["net", "task", f"{options.commit}, ms", "this checkout, ms", "ratio", "rounds"]))
    with check_out(options.commit) as other, tempfile.TemporaryDirectory() as scratch:
        sources = {"this checkout": ROOT / "src", options.commit: other}
        for net_files in find_nets(names, Path(scratch)):
            folder = Path(scratch) / net_files.name
            folder.mkdir()
            write_inference(net_files, folder)
            write_training(net_files.name, folder)
            for task in options.tasks:
                measure = time_starts if task in JOB_OF else time_repeated
                for rounds in (options.rounds, options.confirm):
                    times = measure(task, folder, sources, rounds, options.threads)
                    ratio = median_ratio(*times.values())
                    if ratio <= options.limit:
                        break
                num_slower += ratio > options.limit
                results.append({"net": net_files.name, "task": task, "times": times})
                medians = [f"{statistics.median(times[label]):.3g}" for label in (options.commit, "this checkout")]
                print(format_row([net_files.name, task, *medians, f"{ratio:.3f}", str(rounds)]), flush=True)
    if options.json:
        options.json.write_text(json.dumps({"run": run, "results": results}))
    raise SystemExit(f"{num_slower} above the limit of {options.limit}" if num_slower else 0)


if __name__ == "__main__":
    main()
