"""The worker process that reads fuzz cases, and may crash: one request and one answer per line.

Run as `python -m fuzz.worker FOLDER`, with the folder where cases may be written; stderr is the file `stderr` there.
"""

from __future__ import annotations

import faulthandler
import json
import logging
import os
import resource
import shutil
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from .harness import get_intact_sets, make_case, read_files
from .outcomes import MAX_MEMORY, MAX_SECONDS, Outcome
from .run_case import read_intact_set, run_case

_STDERR_NAME = "stderr"
# bytes of data beyond what intact files need, so that one case cannot take the machine's memory
_MAX_EXTRA_MEMORY = 6 << 30


def main() -> None:
    """Answer requests until the input ends."""
    responses = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever prints must not be taken for an answer
    folder = Path(sys.argv[1])
    os.chdir(folder)
    tempfile.tempdir = str(folder)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    logging.getLogger("caffejax").setLevel(logging.ERROR)
    for i, line in enumerate(sys.stdin):
        request = json.loads(line)
        if request["kind"] == "prepare":
            outcome = _prepare(request["format"])
        else:
            faulthandler.dump_traceback_later(MAX_SECONDS - 0.5, repeat=True)
            outcome = _run_request(request, folder / str(i))
            faulthandler.cancel_dump_traceback_later()
            shutil.rmtree(folder / str(i), ignore_errors=True)
        print(json.dumps(outcome.to_json()), file=responses, flush=True)


def _prepare(format: str) -> Outcome:
    """Read what is intact: that imports, compiles, and takes the memory that cases are measured against."""
    resource.setrlimit(resource.RLIMIT_DATA, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    read_intact_set(format, 0)
    resource.setrlimit(resource.RLIMIT_DATA, (_read_memory("VmData") + _MAX_EXTRA_MEMORY, resource.RLIM_INFINITY))
    return Outcome("read")


def _run_request(request: dict[str, Any], folder: Path) -> Outcome:
    format, intact_index = request["format"], request.get("set")
    if request["kind"] == "seed":
        intact_index, files = make_case(format, request["seed"])
    else:
        files = read_files(Path(request["folder"]))
    if intact_index is not None and files == get_intact_sets(format)[intact_index]:
        return Outcome("equal")
    Path("/proc/self/clear_refs").write_text("5")  # the peak is measured from here
    memory_before, stderr_size = _read_memory("VmRSS"), Path(_STDERR_NAME).stat().st_size
    start_time = time.perf_counter()
    outcome = run_case(format, intact_index, files, folder)
    if not outcome.is_finding:
        outcome = _check_side_effects(outcome, memory_before, stderr_size)
    return replace(outcome, seconds=time.perf_counter() - start_time)


def _check_side_effects(outcome: Outcome, memory_before: int, stderr_size: int) -> Outcome:
    """Return the side effects of a case besides reading: memory, tracebacks printed by threads."""
    peak = _read_memory("VmHWM")
    if peak - memory_before > MAX_MEMORY:
        return Outcome("memory", "peak", f"{(peak - memory_before) >> 20} MiB taken")
    text = Path(_STDERR_NAME).read_bytes()[stderr_size:].decode(errors="replace")
    if "Traceback (most recent" in text or "Exception ignored" in text:
        return Outcome("output", "traceback on stderr", text[-4000:])
    return outcome


def _read_memory(field: str) -> int:
    """Bytes of memory, by their name in /proc/self/status."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) << 10
    return 0


if __name__ == "__main__":
    main()
