"""Native checkpoints, in the format of the library orbax.

A checkpoint folder has one step for each snapshot, which orbax's `CheckpointManager` writes and reads, also without
caffejax. A step has two items: a nested dictionary of arrays, and all other state as JSON. Added to what orbax does are

- a checksum of each array: of a step's flipped bits, orbax alone reads a third as other numbers, without a word;
- the move of an earlier run's steps to another folder: orbax refuses to save a step below them, and can only delete;
- the removal of a step that could not be saved, and silence of orbax's threads after it: see `failed_saves`.

For a checksum, each element's bits are read as an integer and multiplied by an odd weight that depends on the element's
index. The checksum is the sum of the products modulo 2**32. A change of one element changes the checksum, and the
checksums of the shards add up to the checksum of the array.
"""

from __future__ import annotations

import itertools
import json
import logging
import os
import shutil
import zlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from operator import itemgetter
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ...base.errors import Problem, WeightsError
from ..parallel.coordination import barrier, broadcast_from_first
from ..parallel.global_arrays import wait_on_cpu
from ..parallel.mesh import is_first
from .failed_saves import (
    TRASH_FOLDER,
    make_save_error,
    record_failures,
    remove_failed_step,
    remove_temporary_folders,
    summarize,
    suppress_orbax_errors,
    wait_or_fail,
)

_WEIGHT_FACTOR = 0x9E3779B1  # odd, so that no two indices have the same weight
_BLOCK_SIZE = 2**20  # elements of which the host computes the products at once; even, so that weights stay odd
log = logging.getLogger("caffejax")


def compute_checksums(arrays: Any) -> dict[str, int]:
    """Return the checksum of each array of a tree, by the array's path in the tree.

    If arrays are sharded over several processes, all these processes must call it together.
    """
    leaves = jax.tree_util.tree_leaves_with_path(arrays)
    # computed by devices in parallel
    sums = {jax.tree_util.keystr(path): _compute_checksum(array) for path, array in leaves}
    return {path: int(checksum) for path, checksum in sums.items()}


def _compute_checksum(array: Any) -> Any:
    if isinstance(array, jax.Array) and not array.is_fully_addressable:
        if not array.is_fully_replicated:
            return wait_on_cpu(_sum_on_devices(array))
        array = array.addressable_data(0)
    return _sum_on_host(np.asarray(array))


def _sum_on_host(array: np.ndarray) -> int:
    bytes_ = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    bits, total = np.frombuffer(bytes_.data, f"u{min(array.dtype.itemsize, 4)}"), 0
    weights = np.arange(min(len(bits), _BLOCK_SIZE), dtype=np.uint32) * np.uint32(_WEIGHT_FACTOR) | np.uint32(1)
    for start in range(0, len(bits), _BLOCK_SIZE):
        block = bits[start : start + _BLOCK_SIZE].astype(np.uint32)
        total += int(block @ weights[: len(block)]) + start * _WEIGHT_FACTOR * int(block.sum(dtype=np.uint32))
    return total % 2**32


@jax.jit
def _sum_on_devices(array: jax.Array) -> jax.Array:
    """Compute the checksum of an array on the devices of the array, each over its shard, and return it as uint32."""
    size = min(array.dtype.itemsize, 4)
    if array.dtype == bool:
        array = array.astype(jnp.uint8)
    bits = jax.lax.bitcast_convert_type(array, f"uint{8 * size}").astype(jnp.uint32)
    index, stride = jnp.zeros(bits.shape, jnp.uint32), 1
    for axis in reversed(range(bits.ndim)):
        index += jax.lax.broadcasted_iota(jnp.uint32, bits.shape, axis) * np.uint32(stride % 2**32)
        stride *= bits.shape[axis]
    return jnp.sum(bits * (index * np.uint32(_WEIGHT_FACTOR) | np.uint32(1)), dtype=jnp.uint32)


KeepRule = Callable[[], Any]  # it returns orbax's policy for the checkpoints that are kept, or None to keep all


def make_preservation_policy(last: int | None, best: str | None, prefers_lower: bool) -> Any:
    """Return orbax's policy that keeps the newest checkpoints and the best one, or None to keep all.

    Args:
        last: the number of newest checkpoints to keep, or None. If only `best` is set, the newest one is kept, too.
        best: the name of the score whose best checkpoint is kept, or None.
        prefers_lower: whether a lower score is better.
    """
    from orbax.checkpoint import checkpoint_managers as managers

    if last is None and best is None:
        return None
    policies: list[Any] = [managers.LatestN(last or 1)]  # the newest is needed to resume
    if best is not None:
        best_one = {"get_metric_fn": itemgetter(best), "reverse": prefers_lower, "n": 1}
        policies.append(managers.BestN(**best_one, keep_checkpoints_without_metrics=False))
    return managers.AnyPreservationPolicy(policies)


_folder_numbers = itertools.count()  # give each folder that all processes save to separate barriers

Arrays = Mapping[str, Any]  # names to arrays, or to such mappings
MakeTarget = Callable[[dict[str, Any], Arrays], Arrays]  # (record, shapes) to the arrays to read into


def make_numpy_target(record: dict[str, Any], shapes: Arrays) -> Arrays:
    """Return a tree of empty NumPy arrays with the shapes and dtypes in `shapes`. This is the default `make_target`."""
    return jax.tree.map(lambda shape: np.empty(shape.shape, shape.dtype), shapes)


class DamagedStepError(WeightsError):
    """A step of a checkpoint folder that cannot be read."""


class CheckpointFolder:
    """A folder of checkpoints, one for each step.

    If a process is killed while it saves a step, the earlier steps stay unchanged.

    Args:
        path: the folder, which is created when the first step is saved.
        keep: a function that returns orbax's policy for the steps that are kept when a step is saved; default: all.
        is_collective: whether several processes save each step together, where each process writes its shards of the
            arrays. Then all processes must call `save`, `wait` and `close` together. `save` returns before the step is
            complete, and `wait` waits until it is complete. Each process reads independently of the others.
    """

    def __init__(
        self, path: str | os.PathLike[str], keep: KeepRule = lambda: None, is_collective: bool = False
    ) -> None:
        self.path = Path(path)
        self._keep = keep
        self._is_collective = is_collective and jax.process_count() > 1
        self._is_writer = not self._is_collective or is_first()  # of the folder itself
        self._cached_manager: Any = None
        self._pending_step: int | None = None
        self._has_moved_steps = False  # whether steps of an earlier run were moved

    @property
    def _manager(self) -> Any:
        if self._cached_manager is None:
            import orbax.checkpoint as ocp  # not needed before the first snapshot

            try:
                # with a barrier prefix, processes synchronize through JAX's coordinator, not through the busy devices
                process = jax.process_index()
                barrier_prefix = f"folder{next(_folder_numbers)}" if self._is_collective else f"process{process}"
                processes = ocp.options.MultiprocessingOptions(
                    primary_host=0 if self._is_collective else process,
                    active_processes=set(range(jax.process_count())) if self._is_collective else {process},
                    barrier_sync_key_prefix=barrier_prefix,
                )
                options = ocp.CheckpointManagerOptions(
                    preservation_policy=self._keep(),
                    multiprocessing_options=processes,
                    create=False,
                    todelete_subdir=TRASH_FOLDER,
                    enable_async_checkpointing=self._is_collective,  # `Snapshots` has a thread for one process
                )
                handlers = {  # by the items of a step
                    "arrays": ocp.StandardCheckpointHandler(multiprocessing_options=processes),
                    "record": ocp.JsonCheckpointHandler(multiprocessing_options=processes),
                }
                path = self.path.absolute()
                with suppress_orbax_errors():
                    self._cached_manager = ocp.CheckpointManager(path, options=options, item_handlers=handlers)
                if self._is_collective:
                    record_failures(self._cached_manager)
            except Exception as error:  # orbax raises many kinds for metadata that is damaged
                raise _make_error(self.path, f"cannot be opened: {error}") from error
        return self._cached_manager

    def steps(self) -> list[int]:
        """Return the numbers of the complete steps, in ascending order."""
        return sorted(self._manager.all_steps()) if os.path.isdir(self.path) else []

    def save(
        self,
        step: int,
        arrays: Arrays,
        record: Mapping[str, Any],
        scores: Mapping[str, float] | None = None,
        first_moved: int | None = None,
    ) -> None:
        """Save a step. In a folder with `is_collective`, this only starts the save, and `wait` completes it.

        Steps of an earlier run are moved to the folder `<path>.old`, where they replace steps with the same number. If
        the newest step is identical to the new step, nothing is written. This happens if training resumes from a step
        and stops before its first update.

        Args:
            step: the number of the step.
            arrays: nested dictionaries of JAX or NumPy arrays.
            record: values that JSON can represent.
            scores: the scores by name, for `make_preservation_policy`, or None if the net has not been tested yet.
            first_moved: the step from which on all steps are of an earlier run, at most `step`; default: `step`.

        Raises:
            WeightsError: if the folder cannot be written.
        """
        import orbax.checkpoint as ocp

        try:
            if self._is_writer:
                # before orbax, whose threads would wait five minutes for a folder that cannot be created
                self.path.mkdir(parents=True, exist_ok=True)
            if self._is_collective:
                barrier()
            stored_record = _add_checksums(record, compute_checksums(arrays))
            if not self._is_collective and self.steps()[-1:] == [step] and self._try_read(step) == stored_record:
                return
            self._move_earlier_steps(step if first_moved is None else first_moved)
            with suppress_orbax_errors():
                args = ocp.args
                items = args.Composite(arrays=args.StandardSave(arrays), record=args.JsonSave(stored_record))
                self._manager.save(step, args=items, metrics=dict(scores) if scores else None)
            self._pending_step = step
            if not self._is_collective:
                self.wait()
        except WeightsError:
            raise
        except Exception as error:  # orbax and tensorstore raise many kinds
            raise self._discard(step, error) from error

    def wait(self) -> None:
        """Wait until the step that is being saved is complete.

        Raises:
            WeightsError: if the step could not be saved.
        """
        step, self._pending_step = self._pending_step, None
        if step is None or self._cached_manager is None:
            return
        try:
            with suppress_orbax_errors():
                if self._is_collective:
                    wait_or_fail(self._cached_manager)
                self._cached_manager.wait_until_finished()
                self._cached_manager.check_for_errors()
            if self._is_writer:
                remove_temporary_folders(self.path, TRASH_FOLDER)
        except Exception as error:
            raise self._discard(step, error) from error

    def _discard(self, step: int, error: Exception) -> WeightsError:
        if not self._is_collective:  # otherwise another process may be writing to the step
            manager, self._cached_manager = self._cached_manager, None
            with suppress_orbax_errors():
                if manager is not None:
                    with suppress(Exception):
                        manager.close()
                remove_failed_step(self.path, step)
            with suppress(OSError):
                self.path.rmdir()  # succeeds if this was the first step
        return make_save_error(self.path, step, error)

    def _move_earlier_steps(self, first_step: int) -> None:
        """Move the steps from `first_step` on to the folder `<path>.old`, so that no run resumes from them."""
        steps = [step for step in self.steps() if step >= first_step]
        if not (broadcast_from_first(len(steps)) if self._is_collective else steps):
            return
        if self._is_writer:
            old_folder = self.path.with_name(f"{self.path.name}.old")
            if not self._has_moved_steps:
                replaced = ", ".join(str(step) for step in steps if (old_folder / str(step)).exists())
                message = "%s contains steps of an earlier run, which are moved to %s: %s%s"
                replacements = f"; replaced there: {replaced}" if replaced else ""
                log.warning(message, self.path, old_folder, ", ".join(map(str, steps)), replacements)
            self._has_moved_steps = True
            old_folder.mkdir(exist_ok=True)
            for step in steps:
                shutil.rmtree(old_folder / str(step), ignore_errors=True)  # of an even earlier run, or of this one
                (self.path / str(step)).rename(old_folder / str(step))
        if self._is_collective:
            barrier()
        self._manager.reload()

    def restore(
        self,
        step: int | None = None,
        make_target: MakeTarget = make_numpy_target,
        all_succeed: Callable[[bool], bool] = bool,
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the arrays and the record of a step.

        Args:
            step: the number of the step, or None for the newest step.
            make_target: a function `make_target(record, shapes)` that returns a tree like `shapes`. Each leaf is a
                NumPy array to read into, or a `jax.ShapeDtypeStruct` with a sharding; each process then reads its
                shards. The default reads NumPy arrays.
            all_succeed: a function that returns whether its argument is true in all processes that restore together.

        Raises:
            WeightsError: if the step does not exist.
            DamagedStepError: if the step cannot be read. Errors that `make_target` raises are not converted.
        """
        steps = self.steps()
        if not steps:
            raise _make_error(self.path, "there is no complete checkpoint in this folder")
        chosen_step = steps[-1] if step is None else step
        if chosen_step not in steps:
            raise _make_error(self.path, f"there is no step {chosen_step}; the steps are {', '.join(map(str, steps))}")
        try:
            with suppress_orbax_errors():
                arrays, stored_record = self._read(chosen_step, make_target, all_succeed)
            return arrays, stored_record["record"]
        except WeightsError:
            raise
        except Exception as error:  # orbax and tensorstore raise many kinds
            others = (s for s in reversed(steps) if s != chosen_step)
            good_step = next((s for s in others if self._try_read(s, make_target, all_succeed)), None)
            hint = "no other step is good" if good_step is None else f"step {good_step} is the newest good one"
            message = f"{hint}; step {chosen_step} is damaged: {summarize(error)}"
            raise DamagedStepError(Problem(message, str(self.path))) from error

    def _try_read(
        self, step: int, make_target: MakeTarget = make_numpy_target, all_succeed: Callable[[bool], bool] = bool
    ) -> dict[str, Any] | None:
        try:
            with suppress_orbax_errors():
                return self._read(step, make_target, all_succeed)[1]
        except Exception:
            return None

    def _read(
        self, step: int, make_target: MakeTarget, all_succeed: Callable[[bool], bool]
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        import orbax.checkpoint as ocp

        args = ocp.args
        try:
            stored_record = self._manager.restore(step, args=args.Composite(record=args.JsonRestore()))["record"]
            record, sums = (stored_record.get(name, {}) for name in ("record", "sums"))
            if stored_record != _add_checksums(record, sums):
                raise ValueError("the checksum of its record is wrong")
            target = make_target(record, self._manager.item_metadata(step)["arrays"])
            arrays = self._manager.restore(step, args=args.Composite(arrays=args.StandardRestore(target)))["arrays"]
        except Exception:
            all_succeed(False)
            raise
        if not all_succeed(True):
            raise ValueError("another process could not read its shards; see the error of that process")
        if sums != compute_checksums(arrays):
            raise ValueError("the checksum of an array is wrong")
        return arrays, stored_record

    def close(self) -> None:
        """Wait for the step that is being saved, and release orbax's resources."""
        self.wait()
        manager, self._cached_manager = self._cached_manager, None
        if manager is not None and not getattr(manager, "failures", None):  # else it would wait for other processes
            manager.close()


def _add_checksums(record: Any, sums: Mapping[str, int]) -> dict[str, Any]:
    json_record = json.loads(json.dumps(record))  # the values after a round trip through JSON
    checksum = zlib.crc32(json.dumps([json_record, sums], sort_keys=True).encode())
    return {"record": json_record, "sums": dict(sums), "checksum": checksum}


def _make_error(path: Path, message: str) -> WeightsError:
    return WeightsError(Problem(message, file=str(path)))
