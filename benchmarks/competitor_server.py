"""The process of a competitor: it builds its net once, then runs it on request. It needs only NumPy."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

Run = Callable[[], Any]  # one pass; gives the loss or the output


def serve(
    make_run: Callable[[], Run],
    *,
    select_output: Callable[[Any], Any] = np.ravel,
    start: Run | None = None,
    read_peak_bytes: Callable[[], int | None] | None = None,
) -> None:
    """Answer each input line with a line of JSON, until the input is `end`.

    The first line is the time of building and the first run, and the outputs. `run N` returns the milliseconds of N
    runs, and `end` the MiB used and the milliseconds of `start`.

    Args:
        make_run: returns the function to time.
        select_output: selects the part of the result that is compared.
        start: starts a run like the timed function, without waiting for its end.
        read_peak_bytes: returns the memory to report (default: this process's peak, less what it used at the start).
    """
    Path("/proc/self/clear_refs").write_text("5")  # reset the peak
    memory_before, start_time = read_memory("VmRSS"), time.perf_counter()
    run = make_run()
    result = select_output(np.asarray(run(), np.float64))
    first = time.perf_counter() - start_time
    print(json.dumps({"first": first, "result": result.tolist()}), flush=True)
    for line in sys.stdin:
        if line.startswith("run"):
            print(json.dumps([time_run(run) for _ in range(int(line.split()[1]))]), flush=True)
        else:
            host_ms = float("nan")
            if start is not None:  # until the call comes back; it waits only where the work before is not done yet
                host_ms = float(np.median([(time_run(start), run())[0] for _ in range(5)]))
            peak_bytes = read_peak_bytes() if read_peak_bytes else read_memory("VmHWM") - memory_before
            peak = float("nan") if peak_bytes is None else peak_bytes / 2**20
            print(json.dumps({"peak": peak, "host": host_ms}), flush=True)
            return


def time_run(run: Run) -> float:
    """Return the duration of a run in milliseconds."""
    start = time.perf_counter()
    run()
    return (time.perf_counter() - start) * 1000


def read_memory(field: str) -> int:
    """Return a field of this process's status in bytes: VmRSS (current resident memory) or VmHWM (its peak)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(field))
