"""The collectives of a training step: counted in programs that this machine's compiler makes."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import pytest
from collectives import CASES
from planned_nets import LENET, resnet

from caffejax import Net

NETS = {"lenet": LENET, "resnet": resnet()}
NORMS = {"lenet": [], "resnet": [16, 24, 16, 32, 16]}  # channels of each BatchNorm
LOSS = VOTES = 4  # bytes; they come with the gradients
Collectives = list[tuple[str, int, int]]


@pytest.fixture(scope="module")
def programs() -> dict[str, Any]:
    """The collectives of each net in each way: as found by a pattern, and as `planning` counts them."""
    script = Path(__file__).with_name("collectives.py")
    run = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    result: dict[str, Any] = json.loads(run.stdout)
    return result


def bytes_of(name: str) -> int:
    """Return the bytes of all params."""
    params = jax.eval_shape(Net(NETS[name], "TRAIN").init, jax.eval_shape(jax.random.key, 0)).params
    return sum(4 * p.size for p in jax.tree.leaves(params))


def collectives_of(programs: dict[str, Any], name: str, way: str) -> Collectives:
    return [tuple(c) for c in programs[f"{name} {way}"]["found"]]


@pytest.mark.parametrize(("name", "way"), CASES)
def test_collectives_are_counted_correctly(programs: dict[str, Any], name: str, way: str) -> None:
    result, counted = (programs[f"{name} {way}"][k] for k in ("found", "counted"))
    assert sorted(c[:2] for c in result) == sorted(c[:2] for c in counted)
    assert result
    for kind, _, over in counted:
        assert over in ((2, 4) if way == "model" else (8,)), kind


@pytest.mark.parametrize("name", NETS)
def test_gradients_are_all_reduced_once_and_nothing_else_is_sent(programs: dict[str, Any], name: str) -> None:
    assert collectives_of(programs, name, "plain") == [("all-reduce", bytes_of(name) + LOSS, 8)]


def test_stop_votes_travel_with_the_gradients(programs: dict[str, Any]) -> None:
    assert collectives_of(programs, "lenet", "asked") == [("all-reduce", bytes_of("lenet") + LOSS + VOTES, 8)]


@pytest.mark.parametrize("name", NETS)
def test_statistics_are_added_up_once_each_way_with_sync_bn(programs: dict[str, Any], name: str) -> None:
    """Mean and square forward, two sums backward, for each layer; and once what is stored, for all."""
    result = collectives_of(programs, name, "synced")
    assert {(kind, group) for kind, _, group in result} == {("all-reduce", 8)}
    stored = sum(4 * (2 * n + 1) for n in NORMS[name])
    assert sum(size for _, size, _ in result) == bytes_of(name) + LOSS + stored + sum(
        2 * 2 * 4 * n for n in NORMS[name]
    )
    assert len(result) <= 2 * len(NORMS[name]) + (2 if NORMS[name] else 1)


def test_weights_of_bfloat16_nets_are_added_up_in_bfloat16(programs: dict[str, Any]) -> None:
    params = jax.tree.leaves(jax.eval_shape(Net(LENET, "TRAIN").init, jax.eval_shape(jax.random.key, 0)).params)
    n_params, weights = (sum(p.size for p in params if p.ndim > min_ndim) for min_ndim in (0, 1))
    assert programs["reduced bfloat16"] == {"bf16": weights, "f32": n_params - weights + 1}  # and the loss
    for way in ("float32", "bfloat16 kept"):
        assert programs[f"reduced {way}"] == {"f32": n_params + 1}


@pytest.mark.parametrize("way", ["optimizer", "params"])
def test_only_sharded_arrays_are_gathered(programs: dict[str, Any], way: str) -> None:
    """LeNet's first product is large enough to be cut: (500, 800)."""
    result = collectives_of(programs, "lenet", way)
    sums = sum(size * (8 if kind == "reduce-scatter" else 1) for kind, size, _ in result if kind != "all-gather")
    assert sums == bytes_of("lenet") + LOSS
    assert [size for kind, size, _ in result if kind == "all-gather"] == [4 * 500 * 800]


def test_rows_of_a_mesh_add_up_their_own_part_of_gradients(programs: dict[str, Any]) -> None:
    """And no batch meets another: what is not of params is of a row's 8 examples."""
    result = [tuple(c) for c in programs["lenet model"]["counted"]]
    across = [size for kind, size, over in result if over == 4]
    assert sum(across) < 0.6 * bytes_of("lenet")
    assert max(size for _, size, over in result if over == 2) <= 4 * 8 * 800
