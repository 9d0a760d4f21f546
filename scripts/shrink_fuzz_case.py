"""Shrink a case that scripts/fuzz.py has found, and keep it among tests/end_to_end/fuzz/cases.

python scripts/shrink_fuzz_case.py fuzz-findings/lmdb/1234 --name leaf-twice
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import time
from pathlib import Path

TESTS = Path(__file__).parents[1] / "tests" / "end_to_end"
sys.path.insert(0, str(TESTS))

from fuzz.harness import Files, get_intact_sets, load_harness, read_files, write_files  # noqa: E402
from fuzz.outcomes import Outcome  # noqa: E402
from fuzz.shrink import OutOfTimeError, shrink  # noqa: E402
from fuzz.worker_process import Worker  # noqa: E402


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("case", type=Path, help="the folder of the case: <findings>/<format>/<seed>")
    parser.add_argument("--name", help="what to call it; its seed unless given")
    parser.add_argument("--seconds", type=float, default=300, help="how long to try")
    options = parser.parse_args()
    format = options.case.resolve().parent.name
    (source_folder,) = options.case.glob("files*")
    intact_index = int(source_folder.name.partition("@")[2])
    finding = Outcome(**json.loads((options.case / "outcome.json").read_text()))
    worker, end_time = Worker(), time.monotonic() + options.seconds

    def has_same_outcome(files: Files) -> bool:
        if time.monotonic() > end_time:
            raise OutOfTimeError
        with tempfile.TemporaryDirectory() as folder:
            write_files(Path(folder), files)
            return worker.run_folder(format, Path(folder), intact_index).signature == finding.signature

    files = read_files(source_folder)
    if not has_same_outcome(files):
        print(f"{options.case}: the finding is not there any more: {finding.signature}", file=sys.stderr)
        return 1
    original_size = sum(map(len, files.values()))
    files = shrink(files, has_same_outcome, get_intact_sets(format)[intact_index], is_text=load_harness(format).is_text)
    worker.close()
    case_path = TESTS / "fuzz" / "cases" / format / f"{options.name or options.case.name}@{intact_index}"
    shutil.rmtree(case_path, ignore_errors=True)
    write_files(case_path, files)
    print(f"{case_path}: {finding.signature}: {original_size} bytes, now {sum(map(len, files.values()))}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
