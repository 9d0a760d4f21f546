"""Export nets to ONNX, flax source and StableHLO, run the exports, and compare the results with the nets.

python scripts/check_exports.py configs --jobs 2 --out exports.jsonl

Each net, a file or all *.prototxt in a folder, has a process of its own; weights and inputs are drawn. The exit code is
1 if an output differs by more than 1e-4 of its largest number, unless the net itself moves half as far where its inputs
move by 1e-6, or rows have changed places; and if all outputs are the same for any inputs. A form that says which layers
it does not have is counted as refused.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

TESTS = Path(__file__).parents[1] / "tests"
sys.path.insert(0, str(TESTS))

from export.compare_outputs import FORMS, judge_form  # noqa: E402  it is stored beside the tests

ASSESS = """
import json, sys
sys.path.insert(0, sys.argv[3])
from export.run_exports import assess
print(json.dumps(assess(*sys.argv[1:3], sys.argv[4:])))
"""


def main() -> int:
    """Check; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("nets", nargs="+", type=Path, help="net prototxts, or folders of them")
    parser.add_argument("--form", choices=FORMS, action="append", help="one of them; all unless given")
    parser.add_argument("--jobs", type=int, default=1, help="how many at a time")
    parser.add_argument("--phase", choices=("TRAIN", "TEST"), default="TEST", help="which of their layers")
    parser.add_argument("--seconds", type=float, default=900, help="that a net may take")
    parser.add_argument("--out", type=Path, help="a file for what is found, a line of JSON for each net")
    options = parser.parse_args()
    files = [file for path in options.nets for file in (sorted(path.rglob("*.prototxt")) if path.is_dir() else [path])]
    export_formats = options.form or FORMS
    counts = {export_format: Counter[str]() for export_format in export_formats}
    with ThreadPoolExecutor(options.jobs) as threads:
        nets_by_future = {
            threads.submit(_assess_net, file, options.phase, export_formats, options.seconds): file for file in files
        }
        for future in as_completed(nets_by_future):
            file, errors = nets_by_future[future], future.result()
            verdicts = {export_format: judge_form(errors, export_format) for export_format in export_formats}
            for export_format, verdict_name in verdicts.items():
                counts[export_format][verdict_name] += 1
            largest = [
                f"{export_format} {verdict_name} {_format_largest_error(errors.get(export_format))}".rstrip()
                for export_format, verdict_name in verdicts.items()
            ]
            print(f"{file}: {', '.join(largest)}", flush=True)
            if options.out:
                with options.out.open("a") as out_file:
                    out_file.write(json.dumps({"net": str(file), **errors}) + "\n")
    for export_format, verdict_counts in counts.items():
        print(f"{export_format}: {', '.join(f'{n} {name}' for name, n in verdict_counts.most_common())}")
    has_failures = any(counts[name] for counts in counts.values() for name in ("constant", "differs", "failed"))
    return int(has_failures)


def _format_largest_error(errors: dict[str, Any] | None) -> str:
    return f"{max(errors.values()):.1e}" if errors and "refused" not in errors else ""


def _assess_net(file: Path, phase: str, export_formats: Sequence[str], seconds: float) -> dict[str, Any]:
    """Return what a process for this net finds."""
    start = time.monotonic()
    command = [sys.executable, "-c", ASSESS, str(file), phase, str(TESTS), *export_formats]
    try:
        process = subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=False)
    except subprocess.TimeoutExpired:
        return {"failed": f"took over {time.monotonic() - start:.0f} s"}
    if process.returncode:
        return {"failed": f"exit code {process.returncode}: {process.stderr[-2000:]}"}
    return dict(json.loads(process.stdout.splitlines()[-1]))


if __name__ == "__main__":
    sys.exit(main())
