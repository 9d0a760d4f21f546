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
    make_run: Callable[[], Run], *, select_output: Callable[[Any], Any] = np.ravel, start: Run | None = None
) -> None:
    """Answer each line of the input with one line of JSON, until it is `end`.

    The first line says how long making and running once took, and what came out; `run N` gives the milliseconds of N
    runs, `end` the memory that all of it took.

    Args:
        make_run: gives what is timed.
        select_output: what of the result is compared.
        start: the same as what is timed, without waiting for the end.
    """
    Path("/proc/self/clear_refs").write_text("5")  # the peak is counted from here on
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
            print(json.dumps({"peak": (read_memory("VmHWM") - memory_before) / 2**20, "host": host_ms}), flush=True)
            return


def time_run(run: Run) -> float:
    """Return the milliseconds that a run takes."""
    start = time.perf_counter()
    run()
    return (time.perf_counter() - start) * 1000


def read_memory(field: str) -> int:
    """Return a field of this process's status in bytes: VmRSS, resident now, or VmHWM, the most so far."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(field))
