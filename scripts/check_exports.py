"""Export nets as ONNX, as flax source and as StableHLO, run them there, and hold them against the nets themselves.

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
    forms = options.form or FORMS
    counts = {form: Counter[str]() for form in forms}
    with ThreadPoolExecutor(options.jobs) as threads:
        running = {threads.submit(_assess_net, file, options.phase, forms, options.seconds): file for file in files}
        for future in as_completed(running):
            file, errors = running[future], future.result()
            verdicts = {form: judge_form(errors, form) for form in forms}
            for form, word in verdicts.items():
                counts[form][word] += 1
            largest = [f"{form} {word} {_largest(errors.get(form))}".rstrip() for form, word in verdicts.items()]
            print(f"{file}: {', '.join(largest)}", flush=True)
            if options.out:
                with options.out.open("a") as lines:
                    lines.write(json.dumps({"net": str(file), **errors}) + "\n")
    for form, words in counts.items():
        print(f"{form}: {', '.join(f'{n} {word}' for word, n in words.most_common())}")
    return 1 if any(words[word] for words in counts.values() for word in ("constant", "differs", "failed")) else 0


def _largest(errors: dict[str, Any] | None) -> str:
    return f"{max(errors.values()):.1e}" if errors and "refused" not in errors else ""


def _assess_net(file: Path, phase: str, forms: Sequence[str], seconds: float) -> dict[str, Any]:
    """Return what a process for this net finds."""
    start = time.monotonic()
    command = [sys.executable, "-c", ASSESS, str(file), phase, str(TESTS), *forms]
    try:
        process = subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=False)
    except subprocess.TimeoutExpired:
        return {"failed": f"took over {time.monotonic() - start:.0f} s"}
    if process.returncode:
        return {"failed": f"exit code {process.returncode}: {process.stderr[-2000:]}"}
    return dict(json.loads(process.stdout.splitlines()[-1]))


if __name__ == "__main__":
    sys.exit(main())
