"""The states of a snapshot prefix on disk: the newest one, and the states of earlier runs, which are moved aside.

A prefix has checkpoints, `<prefix>.orbax/<n>`, and Caffe's states, `<prefix>_iter_<n>.solverstate[.h5]`. The folder for
states of earlier runs is `<prefix>.orbax.old`.
"""

from __future__ import annotations

import os
import re
import shutil
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path

from ...base.errors import Problem, WeightsError
from ..checkpoints.orbax import CheckpointFolder
from .reporting import log
from .solverstate_io import find_weights, is_caffe_state, weights_namesake


def list_caffe_states(prefix: str) -> list[tuple[int, Path]]:
    """Return `(iteration, file)` of each .solverstate[.h5] with the prefix, in ascending order.

    Raises:
        WeightsError: if the folder exists, but cannot be listed.
    """
    folder, name = os.path.split(prefix)
    pattern = re.compile(re.escape(name) + r"_iter_(\d{1,10})\.solverstate(\.h5)?", re.DOTALL)
    try:
        names = os.listdir(folder or ".")
    except (FileNotFoundError, NotADirectoryError):
        return []  # there is no such folder yet
    except OSError as error:
        raise WeightsError(Problem(f"states cannot be looked for in this folder: {error.strerror}", folder)) from error
    states = []
    for match in filter(None, map(pattern.fullmatch, names)):
        path = Path(folder, match[0])
        with suppress(OSError):  # removed meanwhile
            if path.is_file():
                states.append((int(match[1]), path.stat().st_mtime, path))
    return [(iteration, path) for iteration, _, path in sorted(states)]


def find_resumable(prefix: str) -> str | None:
    """Return the path of the newest state with a prefix, by iteration. Without one, log a line and return None.

    It is the checkpoint folder if its newest step is at least as new as Caffe's states. A .solverstate without its
    weights is passed over, with a warning, if there is another state.

    Raises:
        WeightsError: if the folder cannot be opened, or the newest .solverstate is damaged. The message then names the
            newest state that is not.
    """
    folder = f"{prefix}.orbax"
    with closing(CheckpointFolder(folder)) as checkpoints:
        steps = checkpoints.steps()
    newest_step = steps[-1] if steps else -1
    damage: WeightsError | None = None
    without_weights: list[Path] = []
    newest: str | None = folder if steps else None
    for iteration, path in reversed(list_caffe_states(prefix)):
        if iteration <= newest_step:
            break
        try:
            if _has_weights(path):
                newest = str(path)
                break
            without_weights.append(path)
        except WeightsError as error:
            damage = damage or error
    if damage is not None:
        hint = f"the newest good one is {newest}: resume with --snapshot={newest}" if newest else "no other is good"
        raise WeightsError(replace(p, message=f"{hint}; this newest state: {p.message}") for p in damage.problems)
    if newest is None and without_weights:
        return str(without_weights[0])  # to restore it raises the error that names the weights
    if newest is None:
        log.info("No checkpoint in %s.orbax; training starts at iteration 0", prefix)
    for path in without_weights:
        log.warning("%s is passed over, because its weights are missing; training resumes from %s", path, newest)
    return newest


def find_readable_state(prefix: str) -> str | None:
    """Return the path of the newest .solverstate[.h5] with a prefix that can be read and has weights, or None."""
    for _, path in reversed(list_caffe_states(prefix)):
        with suppress(WeightsError):
            if _has_weights(path):
                return str(path)
    return None


def _has_weights(path: Path) -> bool:
    from ..checkpoints.solverstate import read_solverstate  # importing h5py takes long

    learned_net = read_solverstate(path).learned_net
    return not learned_net or find_weights(path, learned_net) is not None


def move_states_aside(prefix: str, last_iteration: int, replaced_iteration: int | None = None) -> None:
    """Move Caffe's states of later iterations, which an earlier run wrote, to the folder `<prefix>.orbax.old`.

    Otherwise a later run could resume from them. Their weights stay where they are, for scripts that name them, and are
    linked in the folder, too, so that a moved state finds its weights after this run has replaced them.

    Args:
        prefix: the prefix of the snapshots.
        last_iteration: the last iteration of this run's states.
        replaced_iteration: the iteration of a state that is about to be replaced, as by Caffe, and stays; or None.

    Raises:
        WeightsError: if a file cannot be moved.
    """
    later_states = [(iteration, path) for iteration, path in list_caffe_states(prefix) if iteration > last_iteration]
    states = [path for iteration, path in later_states if iteration != replaced_iteration]
    for path in (path for _, path in later_states if path not in states):
        log.warning("%s of an earlier run is replaced", path)
    if not states:
        return
    path = old_folder = Path(f"{prefix}.orbax.old")
    log.warning(
        "these states of an earlier run are moved to %s, so that no run resumes from them: %s",
        *(old_folder, ", ".join(path.name for path in states)),
    )
    try:
        old_folder.mkdir(exist_ok=True)
        for path in states:
            weights = weights_namesake(path)
            if weights.is_file():
                _link(weights, old_folder / weights.name)
            path.replace(old_folder / path.name)
    except OSError as error:
        message = f"cannot be moved aside, though it is of an earlier run: {error.strerror}; remove it"
        raise WeightsError(Problem(message, str(path))) from error


def _link(source: Path, target: Path) -> None:
    target.unlink(missing_ok=True)
    try:
        os.link(source, target)
    except OSError:  # a file system without links
        shutil.copy2(source, target)


def has_prefix(path: Path, prefix: str) -> bool:
    """Return whether a snapshot is among the states of a prefix."""
    absolute = Path(os.path.abspath(path))
    if is_caffe_state(path):
        return absolute in {Path(os.path.abspath(state)) for _, state in list_caffe_states(prefix)}
    folder = Path(os.path.abspath(f"{prefix}.orbax"))
    return folder in (absolute, absolute.parent)
