"""Disturb training in every way, many times: `python scripts/inject_faults.py --runs 200 --seed 0`.

Each seed is a fault, or several, in a small training job that is then resumed: see tests/faults. What is found is
printed; the exit code is 1 if anything was.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "end_to_end" / "faults"))

from disturbances import KINDS
from disturbed_training import Job


def main() -> int:
    """Run; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0, help="the first of so many")
    parser.add_argument("--jobs", type=int, default=2, help="how many at a time")
    parser.add_argument("--kind", help="only faults of this kind")
    options = parser.parse_args()
    seeds = [
        s for s in range(options.seed, options.seed + options.runs) if options.kind in (None, KINDS[s % len(KINDS)])
    ]
    start, runs_with_findings = time.monotonic(), Counter[str]()
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(options.jobs) as threads:
        for seed, problems in zip(seeds, threads.map(Job(Path(folder)).find_problems, seeds), strict=True):
            runs_with_findings[KINDS[seed % len(KINDS)]] += bool(problems)
            for problem in problems:
                print(problem, flush=True)
    runs = Counter(KINDS[s % len(KINDS)] for s in seeds)
    for kind, n in runs.items():
        print(f"{kind:24} {n:4} runs {runs_with_findings[kind]:4} with findings")
    print(f"{len(seeds)} runs, {runs_with_findings.total()} with findings, {time.monotonic() - start:.0f} s")
    return 1 if runs_with_findings.total() else 0


if __name__ == "__main__":
    sys.exit(main())
