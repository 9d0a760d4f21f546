"""Native checkpoints, which orbax writes and `steps` reads.

A checkpoint folder holds one step per snapshot, each complete or not there at all. A step has the arrays as
nested dictionaries of names, readable by orbax alone, and a JSON record of everything else.
"""

from __future__ import annotations

import itertools
import json
import logging
import os
import shutil
import zlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np

from ..errors import Problem, WeightsError
from ..parallel import all_of, is_first, meet, same_everywhere
from .checksums import checksums, old_checksums
from .unfinished import REMOVED, not_saved, quiet, remove_failed, remove_unfinished

log = logging.getLogger("caffejax")


@dataclass(frozen=True)
class Keep:
    """Which checkpoints stay: the newest, the best, or (neither given) all.

    Attributes:
        last: how many of the newest.
        best: the score by which one more stays: the highest, or the lowest.
        lowest: whether lower is better.
    """

    last: int | None = None
    best: str | None = None
    lowest: bool = False

    def policy(self) -> Any:
        """Return orbax's preservation policy."""
        from orbax.checkpoint import checkpoint_managers as managers

        if self.last is None and self.best is None:
            return None  # all
        policies: list[Any] = [managers.LatestN(self.last or 1)]  # the newest is there to go on from
        if self.best is not None:
            name = self.best
            policies.append(
                managers.BestN(
                    get_metric_fn=lambda scores: scores[name],
                    reverse=self.lowest,
                    n=1,
                    keep_checkpoints_without_metrics=False,
                )
            )
        return managers.AnyPreservationPolicy(policies)


_opened = itertools.count()  # of folders that all processes save to, so that these have their own barriers


class CheckpointFolder:
    """A folder of checkpoints, one per step.

    A process that dies while saving leaves the earlier steps as they were.

    Args:
        path: the folder; made when the first step is saved.
        keep: which steps stay when another is saved; all unless given.
        together: whether all of several processes save each step, each its own parts of the arrays: then all call
            `save`, `wait` and `close` together, and saving goes on in the background until `wait`. Each reads for
            itself.
    """

    def __init__(self, path: str | os.PathLike[str], keep: Keep | None = None, together: bool = False) -> None:
        self.path = Path(path)
        self._keep = keep or Keep()
        self._together = together and jax.process_count() > 1
        self._open_manager: Any = None
        self._saving: int | None = None
        self._aside: Path | None = None

    @property
    def _manager(self) -> Any:
        if self._open_manager is None:
            import orbax.checkpoint as ocp  # not needed before the first snapshot

            try:
                # named, processes wait for each other through JAX's coordinator: devices are busy with training
                here = jax.process_index()
                processes = ocp.options.MultiprocessingOptions(
                    primary_host=0 if self._together else here,
                    active_processes=set(range(jax.process_count())) if self._together else {here},
                    barrier_sync_key_prefix=f"folder{next(_opened)}" if self._together else f"process{here}",
                )
                self._open_manager = ocp.CheckpointManager(
                    self.path.absolute(),
                    options=ocp.CheckpointManagerOptions(
                        preservation_policy=self._keep.policy(),
                        multiprocessing_options=processes,
                        create=False,
                        todelete_subdir=REMOVED,
                        enable_async_checkpointing=self._together,  # one process has a thread of its own for it
                    ),
                    item_handlers={
                        ARRAYS: ocp.StandardCheckpointHandler(multiprocessing_options=processes),
                        RECORD: ocp.JsonCheckpointHandler(multiprocessing_options=processes),
                    },
                )
            except Exception as error:  # orbax raises many kinds for metadata that is damaged
                raise _error(self.path, f"cannot be opened: {error}") from error
        return self._open_manager

    def steps(self) -> list[int]:
        """List the complete steps, in order."""
        return sorted(self._manager.all_steps()) if os.path.isdir(self.path) else []

    def save(
        self, step: int, arrays: Arrays, record: Mapping[str, Any], scores: Mapping[str, float] | None = None
    ) -> None:
        """Save a step, or if `together` start to.

        Steps from it on, of an earlier run, are set aside: `<path>.old1/<step>`. If the newest is this one, just as
        it would be written, it stays: training was stopped before its first update.

        Args:
            step: its number.
            arrays: nested dictionaries of JAX's arrays, or of NumPy's.
            record: what JSON can hold.
            scores: what `keep` ranks by, if there are any yet.

        Raises:
            WeightsError: if the folder cannot be written.
        """
        import orbax.checkpoint as ocp

        try:
            if not self._together or is_first():
                # first: orbax's threads would wait five minutes for a folder that cannot be made
                self.path.mkdir(parents=True, exist_ok=True)
            if self._together:
                meet()
            if self._together and not all_of(self.path.is_dir()):
                raise _error(self.path, "some process does not see this folder: all write checkpoints to one")
            stored = with_checksums(record, checksums(arrays))
            if not self._together and self.steps()[-1:] == [step] and self._read(on_host).has(step, stored):
                return
            self._set_aside(step)
            with quiet():
                self._manager.save(
                    step,
                    args=ocp.args.Composite(
                        **{ARRAYS: ocp.args.StandardSave(arrays), RECORD: ocp.args.JsonSave(stored)}
                    ),
                    metrics=dict(scores) if scores else None,
                )
            self._saving = step
            if not self._together:
                self.wait()
        except WeightsError:
            raise
        except Exception as error:  # orbax and tensorstore raise many kinds
            raise self._discarded(step, error) from error

    def wait(self) -> None:
        """Wait until what is being saved is complete.

        Raises:
            WeightsError: if it could not be saved.
        """
        step, self._saving = self._saving, None
        if step is None or self._open_manager is None:
            return
        try:
            with quiet():
                self._open_manager.wait_until_finished()
                self._open_manager.check_for_errors()
            if not self._together or is_first():
                remove_unfinished(self.path, REMOVED)
        except Exception as error:
            raise self._discarded(step, error) from error

    def _discarded(self, step: int, error: Exception) -> WeightsError:
        """Remove what there is of a step that could not be saved; return what is said of it."""
        if not self._together:  # else another process may be writing to it
            manager, self._open_manager = self._open_manager, None
            with quiet():  # until the threads that still write have ended
                if manager is not None:
                    with suppress(Exception):
                        manager.close()
                remove_failed(self.path, step)
            with suppress(OSError):
                self.path.rmdir()  # if it was the first
        return not_saved(self.path, step, error)

    def _set_aside(self, first: int) -> None:
        """Move steps from this one on out of the way: a run that goes over them again would resume from theirs."""
        steps = sorted(step for step in self._manager.all_steps() if step >= first)
        if not (same_everywhere(len(steps)) if self._together else steps):
            return
        self.close()
        if not self._together or is_first():
            self._move(steps)
        if self._together:
            meet()

    def _move(self, steps: Sequence[int]) -> None:
        if self._aside is None:
            taken = {p.name for p in self.path.parent.iterdir()}
            names = (f"{self.path.name}.old{i}" for i in itertools.count(1))
            self._aside = self.path.with_name(next(name for name in names if name not in taken))
            listed = ", ".join(map(str, steps))
            log.warning("%s holds steps of an earlier run; moved to %s: %s", self.path, self._aside, listed)
        self._aside.mkdir(exist_ok=True)
        for step in steps:
            shutil.rmtree(self._aside / str(step), ignore_errors=True)  # saved twice by this run
            (self.path / str(step)).rename(self._aside / str(step))

    def restore(
        self,
        step: int | None = None,
        target: Target | None = None,
        all_can: Callable[[bool], bool] = bool,
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the arrays and the record of a step, or of the newest.

        Args:
            step: its number.
            target: gives what to read into, by name as the arrays are: NumPy's, or `jax.ShapeDtypeStruct` with a
                sharding, of which each process reads its part. All is NumPy's unless given.
            all_can: asks, of processes that restore together, whether all can read their parts.

        Raises:
            WeightsError: if there is no such step or it cannot be read; and what `target` raises.
        """

        steps = self.steps()
        if not steps:
            raise _error(self.path, "there is no complete checkpoint in this folder")
        chosen = steps[-1] if step is None else step
        if chosen not in steps:
            raise _error(self.path, f"there is no step {chosen}; there are {', '.join(map(str, steps))}")
        read = self._read(target or on_host, all_can)
        try:
            with quiet():
                return read(chosen)
        except WeightsError:
            raise
        except Exception as error:  # orbax and tensorstore raise many kinds
            reason = str(error).partition(" See full TensorStore")[0].partition("\n")[0] or type(error).__name__
            good = next((s for s in reversed(steps) if s != chosen and read.is_good(s)), None)
            hint = f"; step {good} is the newest good one" if good is not None else "; no other step is good"
            raise _error(self.path, f"step {chosen} is damaged: {reason}{hint}") from error

    def _read(self, target: Target, all_can: Callable[[bool], bool] = bool) -> Steps:
        return Steps(self._manager, target, all_can)

    def close(self) -> None:
        """Wait, and let go of the folder."""
        self.wait()
        manager, self._open_manager = self._open_manager, None
        if manager is not None:
            manager.close()


def _error(path: Path, message: str) -> WeightsError:
    return WeightsError(Problem(message, file=str(path)))


ARRAYS, RECORD = "arrays", "record"  # the items of a step
Arrays = Mapping[str, Any]  # names to arrays, or to more of these
Target = Callable[[dict[str, Any], Arrays], Arrays]  # what to read arrays into, by the record and their shapes


@dataclass(frozen=True)
class Steps:
    """The steps of a folder, to be read: called with one, returns its arrays and record.

    Attributes:
        manager: orbax's, of the folder.
        target, all_can: as for `CheckpointFolder.restore`.
    """

    manager: Any
    target: Target
    all_can: Callable[[bool], bool]

    def __call__(self, step: int) -> tuple[dict[str, Any], dict[str, Any]]:
        """Read a step."""
        try:
            arrays, stored = self._read(step)
        except Exception:
            self.all_can(False)
            raise
        if not self.all_can(True):
            raise ValueError("another process cannot read its part")
        sums = checksums if "sums" in stored else old_checksums
        if stored[_sums_of(stored)] != sums(arrays):
            raise ValueError("what was read is not what was written")
        return arrays, stored["record"]

    def is_good(self, step: int) -> bool:
        """Return whether a step can be read."""
        try:
            with quiet():
                self(step)
        except Exception:
            return False
        return True

    def has(self, step: int, stored: Mapping[str, Any]) -> bool:
        """Return whether a step is there and whole, with just this record and arrays of these checksums."""
        try:
            with quiet():
                arrays, found = self._read(step)
        except Exception:
            return False
        return found == stored and checksums(arrays) == stored["sums"]

    def _read(self, step: int) -> tuple[dict[str, Any], dict[str, Any]]:
        import orbax.checkpoint as ocp

        args = ocp.args
        stored = self.manager.restore(step, args=args.Composite(**{RECORD: args.JsonRestore()}))[RECORD]
        if stored != with_checksums(stored["record"], stored[_sums_of(stored)], _sums_of(stored)):
            raise ValueError("what was read is not what was written")
        target = self.target(stored["record"], self.manager.item_metadata(step)[ARRAYS])
        read = self.manager.restore(step, args=args.Composite(**{ARRAYS: args.StandardRestore(target)}))
        return read[ARRAYS], stored


def on_host(record: dict[str, Any], shapes: Arrays) -> Arrays:
    """Return NumPy arrays to read into."""
    found: Arrays = jax.tree.map(lambda shape: np.empty(shape.shape, shape.dtype), shapes)
    return found


def with_checksums(record: Any, sums: Mapping[str, int], name: str = "sums") -> dict[str, Any]:
    """Add checksums of the arrays and of the record itself: not every flipped bit fails to decompress."""
    plain = json.loads(json.dumps(record))  # as it will be read
    return {
        "record": plain,
        name: dict(sums),
        "checksum": zlib.crc32(json.dumps([plain, sums], sort_keys=True).encode()),
    }


def _sums_of(stored: Mapping[str, Any]) -> str:
    return "sums" if "sums" in stored else "arrays"  # the latter until all processes wrote checkpoints
