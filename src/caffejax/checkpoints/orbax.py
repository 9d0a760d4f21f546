"""Native checkpoints: the only module that knows orbax.

A checkpoint folder holds one step per snapshot, each complete or not there at all. A step has the arrays as
nested dictionaries of names, readable by orbax alone, and a JSON record of everything else.
"""

from __future__ import annotations

import itertools
import json
import logging
import os
import shutil
import sys
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np

from ..errors import Problem, WeightsError

Arrays = Mapping[str, Any]  # names to arrays, or to more of these
_ARRAYS, _RECORD = "arrays", "record"

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


class CheckpointFolder:
    """A folder of checkpoints, one per step.

    Saving happens in the background; `wait` or `close` ends it. A process that dies while saving leaves the
    earlier steps as they were.

    Args:
        path: the folder; made when the first step is saved.
        keep: which steps stay when another is saved; all unless given.
    """

    def __init__(self, path: str | os.PathLike[str], keep: Keep | None = None) -> None:
        self.path = Path(path)
        self._keep = keep or Keep()
        self._open_manager: Any = None
        self._aside: Path | None = None

    @property
    def _manager(self) -> Any:
        if self._open_manager is None:
            import orbax.checkpoint as ocp  # not needed before the first snapshot

            try:
                # of several processes each reads for itself, and one writes: none waits for another
                alone = ocp.options.MultiprocessingOptions(
                    primary_host=jax.process_index(),
                    active_processes={jax.process_index()},
                    barrier_sync_key_prefix=f"process{jax.process_index()}",
                )
                self._open_manager = ocp.CheckpointManager(
                    self.path.absolute(),
                    options=ocp.CheckpointManagerOptions(
                        preservation_policy=self._keep.policy(), multiprocessing_options=alone, create=False
                    ),
                    item_handlers={
                        _ARRAYS: ocp.StandardCheckpointHandler(multiprocessing_options=alone),
                        _RECORD: ocp.JsonCheckpointHandler(multiprocessing_options=alone),
                    },
                )
            except OSError as error:
                raise _error(self.path, f"cannot be opened: {error}") from error
        return self._open_manager

    def steps(self) -> list[int]:
        """List the complete steps, in order."""
        return sorted(self._manager.all_steps()) if self.path.is_dir() else []

    def save(
        self, step: int, arrays: Arrays, record: Mapping[str, Any], scores: Mapping[str, float] | None = None
    ) -> None:
        """Start saving a step. Steps from it on, of an earlier run, are set aside: `<path>.old1/<step>`.

        Args:
            step: its number.
            arrays: nested dictionaries of NumPy arrays, which must not change until `wait` returns.
            record: what JSON can hold.
            scores: what `keep` ranks by, if there are any yet.

        Raises:
            WeightsError: if the folder cannot be written.
        """
        import orbax.checkpoint as ocp

        try:
            # first: orbax's threads would wait five minutes for a folder that cannot be made
            self.path.mkdir(parents=True, exist_ok=True)
            self._set_aside([s for s in self.steps() if s >= step])
            self._manager.save(
                step,
                args=ocp.args.Composite(
                    **{
                        _ARRAYS: ocp.args.StandardSave(arrays),
                        _RECORD: ocp.args.JsonSave(_with_checksums(record, arrays)),
                    }
                ),
                metrics=dict(scores) if scores else None,
            )
        except (OSError, ValueError) as error:
            raise _error(self.path, f"cannot save step {step}: {error}") from error

    def _set_aside(self, steps: Sequence[int]) -> None:
        """Move steps out of the way: a run that goes over them again would otherwise resume from theirs."""
        if not steps:
            return
        self.close()
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

    def restore(self, step: int | None = None) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the arrays (NumPy) and the record of a step, or of the newest.

        Raises:
            WeightsError: if there is no such step or it cannot be read.
        """

        steps = self.steps()
        if not steps:
            raise _error(self.path, "there is no complete checkpoint in this folder")
        chosen = steps[-1] if step is None else step
        if chosen not in steps:
            raise _error(self.path, f"there is no step {chosen}; there are {', '.join(map(str, steps))}")
        try:
            return self._read(chosen)
        except Exception as error:  # orbax and tensorstore raise many kinds
            _ignore_late_callbacks()
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            good = next((s for s in reversed(steps) if s != chosen and self._is_good(s)), None)
            hint = f"; step {good} is the newest good one" if good is not None else "; no other step is good"
            raise _error(self.path, f"step {chosen} is damaged: {reason}{hint}") from error

    def _read(self, step: int) -> tuple[dict[str, Any], dict[str, Any]]:
        import orbax.checkpoint as ocp

        shapes = self._manager.item_metadata(step)[_ARRAYS]
        target = jax.tree.map(lambda m: np.empty(m.shape, m.dtype), shapes)
        restored = self._manager.restore(
            step,
            args=ocp.args.Composite(**{_ARRAYS: ocp.args.StandardRestore(target), _RECORD: ocp.args.JsonRestore()}),
        )
        arrays, stored = restored[_ARRAYS], restored[_RECORD]
        if stored != _with_checksums(stored.get("record"), arrays):
            raise ValueError("what was read is not what was written")
        return arrays, stored["record"]

    def _is_good(self, step: int) -> bool:
        try:
            self._read(step)
        except Exception:
            return False
        return True

    def wait(self) -> None:
        """Wait until what is being saved is complete.

        Raises:
            WeightsError: if it could not be saved.
        """
        if self._open_manager is not None:
            try:
                self._open_manager.wait_until_finished()
                self._open_manager.check_for_errors()
            except Exception as error:
                raise _error(self.path, f"saving failed: {error}") from error

    def close(self) -> None:
        """Wait, and let go of the folder."""
        if self._open_manager is not None:
            self.wait()
            self._open_manager.close()
            self._open_manager = None


def _with_checksums(record: Any, arrays: Arrays) -> dict[str, Any]:
    """Add checksums of the arrays and of the record itself: not every flipped bit fails to decompress."""
    flat = jax.tree_util.tree_leaves_with_path(arrays)
    sums = {
        jax.tree_util.keystr(path): zlib.crc32(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
        for path, array in flat
    }
    plain = json.loads(json.dumps(record))  # as it will be read
    return {"record": plain, "arrays": sums, "checksum": zlib.crc32(json.dumps([plain, sums], sort_keys=True).encode())}


def _ignore_late_callbacks() -> None:
    """Keep stderr clean after a failed restore: reads still under way then find their event loop closed."""
    report = sys.unraisablehook

    def hook(unraisable: Any) -> None:
        if "Event loop is closed" not in str(unraisable.exc_value):
            report(unraisable)

    sys.unraisablehook = hook


def _error(path: Path, message: str) -> WeightsError:
    return WeightsError(Problem(message, file=str(path)))
