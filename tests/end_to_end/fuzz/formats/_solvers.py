"""A small solver whose snapshots are restored, and the values that must be equal."""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

from caffejax import CaffejaxError, Solver

from ..harness import Files, read_files

_DIGITS = Path(__file__).parents[4] / "configs" / "digits" / "digits_test_lmdb"
SOLVER = f"""
net_param {{
  layer {{ name: "digits" type: "Data" top: "data" top: "label"
    data_param {{ source: "{_DIGITS}" batch_size: 2 backend: LMDB }} }}
  layer {{ name: "ip" type: "InnerProduct" bottom: "data" top: "ip" inner_product_param {{ num_output: 10 }} }}
  layer {{ name: "bn" type: "BatchNorm" bottom: "ip" top: "ip" }}
  layer {{ name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }}
}}
base_lr: 0.001 lr_policy: "plateau" plateau_winsize: 5 gamma: 0.1 max_iter: 100 momentum: 0.9 random_seed: 1
"""


@functools.cache
def build_solver() -> Solver:
    """The solver, built once."""
    return Solver(SOLVER)


@functools.cache
def write_snapshot(*name_parts: str, hdf5: bool = False) -> Files:
    """Write a snapshot after two iterations; return its files whose names contain this text."""
    with tempfile.TemporaryDirectory() as folder:
        format_setting = "snapshot_format: HDF5" if hdf5 else ""
        solver = Solver(f'{SOLVER} {format_setting} snapshot_prefix: "{folder}/x"')
        solver.step(2)
        solver.snapshot()
        solver.close()
        return {
            name: content
            for name, content in read_files(Path(folder)).items()
            if any(part in name for part in name_parts)
        }


def restore(path: Path) -> dict[str, Any]:
    """Restore a snapshot, train for one iteration, and return the state before it.

    Raises:
        CaffejaxError: if the snapshot is refused; then the solver is unchanged.
        AssertionError: if the solver has changed.
    """
    solver = build_solver()
    state_before = _get_state(solver)
    try:
        solver.restore(path)
    except CaffejaxError:
        assert not _find_differences(state_before, _get_state(solver)), "refused, but the solver is changed"
        raise
    result = _get_state(solver)
    solver.step(1)
    return result


def describe_state_difference(expected: Mapping[str, Any], actual: Mapping[str, Any]) -> str | None:
    """Return a message if the restored state differs from the saved state."""
    names = _find_differences(expected, actual)
    return f"restored something else: {', '.join(names)}" if names else None


def _get_state(solver: Solver) -> dict[str, Any]:
    state = solver.train_state.replace(key=jax.random.key_data(solver.train_state.key))  # type: ignore[attr-defined]
    return {jax.tree_util.keystr(path): np.asarray(x) for path, x in jax.tree_util.tree_leaves_with_path(state)}


def _find_differences(expected: Mapping[str, Any], actual: Mapping[str, Any]) -> list[str]:
    return [name for name in expected if not np.array_equal(expected[name], actual[name], equal_nan=True)]
