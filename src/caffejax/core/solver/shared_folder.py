"""The check that all processes write their snapshots to one folder."""

from __future__ import annotations

import os
import secrets
import time
from pathlib import Path

import jax

from ...base.errors import Problem, SolverError
from ..parallel.coordination import exchange
from ..parallel.mesh import is_first

_PURPOSE = "find the folder of the snapshots"
_LOOK_SECONDS = 2.0  # for which a new file may be invisible on other hosts of a network file system


def check_shared_folder(prefix: str) -> None:
    """Check that all processes see and can write to the folder of a snapshot prefix; all must call it together.

    Process 0 creates the folder, and in it a file with a random name, for which the others look. A folder of the same
    path on another disk does not have it.

    Raises:
        SolverError: in all processes, if one of them cannot. The message names the processes.
    """
    if jax.process_count() == 1:
        return
    name = f".{Path(prefix).name}_iter_{secrets.token_hex(8)}.tmp"  # what is left of it, `remove_partial_files` removes
    folder, problem = Path(prefix).parent, ""
    if is_first():
        try:
            folder.mkdir(parents=True, exist_ok=True)
            (folder / name).touch(exist_ok=False)
        except OSError as error:
            problem = f"cannot write to it: {error.strerror}"
    file = folder / exchange(_PURPOSE, name)[0]
    try:
        problems = exchange(_PURPOSE, problem or _find_problem(file))
    finally:
        if is_first():
            file.unlink(missing_ok=True)
    if any(problems):
        raise SolverError(
            Problem(
                f"process {i} {problem}; all processes must write snapshots to one folder, so name a shared folder in "
                "snapshot_prefix",
                file=str(folder),
            )
            for i, problem in enumerate(problems)
            if problem
        )


def _find_problem(file: Path) -> str:
    end = time.monotonic() + _LOOK_SECONDS
    while not is_first() and not file.exists():
        if time.monotonic() > end:
            return "has another folder of this path" if file.parent.is_dir() else "has no such folder"
        time.sleep(0.1)
    return "" if os.access(file.parent, os.W_OK) else "cannot write to it"
