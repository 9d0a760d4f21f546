"""Damage files of every format by seed, read each in a separate process, and store failures in a folder.

python scripts/fuzz.py --seconds 3600 --seed 1 --jobs 2
python scripts/fuzz.py --format lmdb --seconds 600
"""

from __future__ import annotations

import argparse
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "end_to_end"))

from fuzz.harness import list_formats
from fuzz.run import Tally, fuzz


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--format", action="append", choices=list_formats(), help="one of them; all unless given")
    parser.add_argument("--seconds", type=float, default=600, help="for all formats together")
    parser.add_argument("--seed", type=int, default=1, help="the first case of each format")
    parser.add_argument("--jobs", type=int, default=1, help="formats at once")
    parser.add_argument("--findings", type=Path, default=Path("fuzz-findings"), help="where findings are kept")
    options = parser.parse_args()
    names = options.format or list_formats()
    seconds_each = options.seconds * options.jobs / len(names)

    def run(name: str) -> Tally:
        tally = fuzz(
            name,
            options.seed,
            seconds=seconds_each,
            findings_folder=options.findings,
            report=lambda line: print(line, flush=True),
        )
        print(f"{name}: {tally}", flush=True)
        return tally

    with ThreadPoolExecutor(options.jobs) as threads:
        tallies = list(threads.map(run, names))
    findings = sum(len(tally.findings) for tally in tallies)
    print(f"{sum(tally.num_cases for tally in tallies)} cases, {findings} findings")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
