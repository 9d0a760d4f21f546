"""Reading the steps of a checkpoint folder, and the checksums by which one knows that all is as it was written."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from .checksums import checksums, old_checksums
from .unfinished import quiet

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
