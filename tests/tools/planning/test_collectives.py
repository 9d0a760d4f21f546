"""The collectives of a training step, counted in programs compiled for this machine."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import pytest
from planned_nets import LENET, make_resnet
from print_collectives import CASES

from caffejax import Net

NETS = {"lenet": LENET, "resnet": make_resnet()}
NORM_CHANNELS = {"lenet": [], "resnet": [16, 24, 16, 32, 16]}  # channels of each BatchNorm
LOSS = VOTES = 4  # bytes; they come with the gradients
Collectives = list[tuple[str, int, int]]


@pytest.fixture(scope="module")
def programs() -> dict[str, Any]:
    """Return the collectives of each net in each parallel mode, as found by a pattern and as counted by `planning`."""
    script = Path(__file__).with_name("print_collectives.py")
    process = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stderr
    result: dict[str, Any] = json.loads(process.stdout)
    return result


def count_param_bytes(name: str) -> int:
    """Return the size of all params in bytes."""
    params = jax.eval_shape(Net(NETS[name], "TRAIN").init, jax.eval_shape(jax.random.key, 0)).params
    return sum(4 * p.size for p in jax.tree.leaves(params))


def get_collectives(programs: dict[str, Any], name: str, mode: str) -> Collectives:
    return [tuple(c) for c in programs[f"{name} {mode}"]["expected"]]


@pytest.mark.parametrize(("name", "mode"), CASES)
def test_collectives_are_counted_correctly(programs: dict[str, Any], name: str, mode: str) -> None:
    expected, counted = (programs[f"{name} {mode}"][k] for k in ("expected", "counted"))
    assert sorted(c[:2] for c in expected) == sorted(c[:2] for c in counted)
    assert expected
    for kind, _, group_size in counted:
        assert group_size in ((2, 4) if mode == "model" else (8,)), kind


@pytest.mark.parametrize("name", NETS)
def test_gradients_are_all_reduced_once_and_nothing_else_is_sent(programs: dict[str, Any], name: str) -> None:
    assert get_collectives(programs, name, "plain") == [("all-reduce", count_param_bytes(name) + LOSS, 8)]


def test_stop_votes_travel_with_the_gradients(programs: dict[str, Any]) -> None:
    assert get_collectives(programs, "lenet", "stop votes") == [
        ("all-reduce", count_param_bytes("lenet") + LOSS + VOTES, 8)
    ]


@pytest.mark.parametrize("name", NETS)
def test_sync_bn_sums_statistics_once_in_each_pass(programs: dict[str, Any], name: str) -> None:
    """A layer sums mean and square in forward, two sums in backward; stored statistics are summed once for all."""
    result = get_collectives(programs, name, "sync_bn")
    assert {(kind, group) for kind, _, group in result} == {("all-reduce", 8)}
    stored_bytes = sum(4 * (2 * n + 1) for n in NORM_CHANNELS[name])
    assert sum(size for _, size, _ in result) == count_param_bytes(name) + LOSS + stored_bytes + sum(
        2 * 2 * 4 * n for n in NORM_CHANNELS[name]
    )
    assert len(result) <= 2 * len(NORM_CHANNELS[name]) + (2 if NORM_CHANNELS[name] else 1)


def test_weights_of_bfloat16_nets_are_summed_in_bfloat16(programs: dict[str, Any]) -> None:
    params = jax.tree.leaves(jax.eval_shape(Net(LENET, "TRAIN").init, jax.eval_shape(jax.random.key, 0)).params)
    num_params, num_weights = (sum(p.size for p in params if p.ndim > min_ndim) for min_ndim in (0, 1))
    assert programs["reduced bfloat16"] == {"bf16": num_weights, "f32": num_params - num_weights + 1}  # and the loss
    for mode in ("float32", "bfloat16 kept"):
        assert programs[f"reduced {mode}"] == {"f32": num_params + 1}


@pytest.mark.parametrize("mode", ["optimizer", "params"])
def test_only_sharded_arrays_are_gathered(programs: dict[str, Any], mode: str) -> None:
    """LeNet's first InnerProduct weight, (500, 800), is large enough to be sharded."""
    result = get_collectives(programs, "lenet", mode)
    sums = sum(size * (8 if kind == "reduce-scatter" else 1) for kind, size, _ in result if kind != "all-gather")
    assert sums == count_param_bytes("lenet") + LOSS
    assert [size for kind, size, _ in result if kind == "all-gather"] == [4 * 500 * 800]


def test_rows_of_a_mesh_sum_only_their_shard_of_gradients(programs: dict[str, Any]) -> None:
    """Activations are exchanged only within a row of the mesh, for its 8 examples."""
    result = [tuple(c) for c in programs["lenet model"]["counted"]]
    row_sums = [size for kind, size, group_size in result if group_size == 4]
    assert sum(row_sums) < 0.6 * count_param_bytes("lenet")
    assert max(size for _, size, group_size in result if group_size == 2) <= 4 * 8 * 800
