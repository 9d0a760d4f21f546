"""What users give solvers, checked before anything is read."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, get_args

import jax

from ..errors import CaffejaxError, SolverError
from ..options import OnSnapshotError, Parallel, Reading, Run, is_whole, quoted, resolved
from ..sizes import counted


def check_options(
    own: Mapping[str, Any], run: Run, reading: Reading, options: Mapping[str, Any]
) -> tuple[Run, Reading]:
    """Return the options of nets, see `options.resolved`; check a solver's `own` by name as well.

    Raises:
        SolverError: naming every option with a value that it cannot have.
    """
    problems = list(_problems(**own))
    try:
        found = resolved(run, reading, options)
    except CaffejaxError as error:
        raise SolverError([*problems, *error.problems]) from None
    if problems:
        raise SolverError(problems)
    return found


def chosen_devices(device: jax.Device | None, devices: int | Sequence[jax.Device] | None) -> list[jax.Device] | None:
    """Return the devices to train on; None for one.

    Raises:
        SolverError: if there are not as many.
    """
    if device is not None and devices is not None:
        raise SolverError("give device or devices, not both")
    if device is not None and jax.process_count() > 1:
        raise SolverError("several processes train on the devices of all together; leave out device")
    if devices is None:
        return None if jax.process_count() == 1 else jax.devices()
    if isinstance(devices, Sequence):
        return list(devices)
    there = jax.devices()
    if devices > len(there):
        raise SolverError(
            f"JAX has {counted(len(there), 'device')} here, not {devices}; "
            f"JAX_NUM_CPU_DEVICES={devices} in the environment simulates them on a CPU"
        )
    return there[:devices]


def _problems(
    *,
    weights: Any,
    device: Any,
    devices: Any,
    parallel: Any,
    keep_last: Any,
    keep_best: Any,
    checkpoint_only: Any,
    steps_per_dispatch: Any,
    on_snapshot_error: Any,
    debug_nans: Any,
    seed: Any,
) -> Iterator[str]:
    if isinstance(weights, str | os.PathLike):
        yield f'weights must be a list of files, ["{os.fspath(weights)}"], not one'
    if not (device is None or isinstance(device, jax.Device)):
        yield f"device must be one of JAX's, such as jax.devices()[0], not {quoted(device)}"
    several = isinstance(devices, Sequence) and devices and all(isinstance(d, jax.Device) for d in devices)
    if not (devices is None or several or (is_whole(devices) and devices > 0)):
        yield f"devices must be a number from 1 on or a list of JAX's devices, not {quoted(devices)}"
    if not isinstance(parallel, Parallel):
        yield f"parallel must be a caffejax.Parallel, not {quoted(parallel)}"
    for name, value in {"keep_last": keep_last, "seed": seed}.items():
        if not (value is None or is_whole(value)):
            yield f"{name} must be None or a whole number, not {quoted(value)}"
    if not (keep_best is None or isinstance(keep_best, str)):
        yield f"keep_best must be None or the name of an output, not {quoted(keep_best)}"
    if not is_whole(steps_per_dispatch) or steps_per_dispatch < 1:
        yield f"steps_per_dispatch must be a whole number from 1 on, not {quoted(steps_per_dispatch)}"
    if on_snapshot_error not in get_args(OnSnapshotError):
        known = " or ".join(map(quoted, get_args(OnSnapshotError)))
        yield f"on_snapshot_error must be {known}, not {quoted(on_snapshot_error)}"
    elif on_snapshot_error == "continue" and jax.process_count() > 1:
        yield "on_snapshot_error must be 'stop' where processes train together: all wait for what one cannot write"
    for name, value in {"checkpoint_only": checkpoint_only, "debug_nans": debug_nans}.items():
        if not isinstance(value, bool):
            yield f"{name} must be True or False, not {quoted(value)}"
