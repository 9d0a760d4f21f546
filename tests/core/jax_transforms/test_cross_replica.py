"""Nets whose devices share a global batch: chained losses, BatchNorm, traces, and collectives."""

from concurrent.futures import ProcessPoolExecutor
from typing import Any

import cross_replica_checks
import jax
import pytest
from cross_replica_checks import LOSS_LAYERS, NORM_LAYERS, SYNC_OPTIONS, make_net

OPTIONS: list[dict[str, Any]] = [
    {},
    {"backward": "rules"},
    {"kernels": "reference"},
    {"kernels": "reference", "backward": "rules"},
    {"remat": "auto", "memory_limit": 0},
]


@pytest.mark.parametrize("options", OPTIONS, ids=lambda o: "-".join(map(str, o.values())) or "fast")
def test_training_step_equals_joint_batch(options: dict[str, Any], eight_devices: ProcessPoolExecutor) -> None:
    eight_devices.submit(cross_replica_checks.check_training_step, **options).result()


@pytest.mark.parametrize("backward", ["autodiff", "rules"])
def test_forward_mode_equals_joint_batch(backward: str, eight_devices: ProcessPoolExecutor) -> None:
    eight_devices.submit(cross_replica_checks.check_forward_mode, backward).result()


@pytest.mark.parametrize(
    "options", [{}, {"sync_bn": True}, {"axis_name": "data"}, {"axis_name": "other", "sync_bn": True}]
)
def test_unsynced_batch_norm_uses_the_batch_of_each_device(
    options: dict[str, Any], eight_devices: ProcessPoolExecutor
) -> None:
    eight_devices.submit(cross_replica_checks.check_unsynced_batch_norm, **options).result()


@pytest.mark.parametrize(("options", "n_all_reduces"), [({}, 0), ({"axis_name": "data"}, 0), (SYNC_OPTIONS, 1)])
def test_batch_norm_needs_one_all_reduce_each_way(
    options: dict[str, Any], n_all_reduces: int, eight_devices: ProcessPoolExecutor
) -> None:
    eight_devices.submit(cross_replica_checks.check_all_reduce_counts, n_all_reduces, n_all_reduces, **options).result()


@pytest.mark.parametrize(("platform", "shapes"), [("tpu", ["3xf32", "3xf32"]), ("cuda", ["2x3xf32"])])
def test_sums_of_batch_norm_are_stacked_except_on_tpus(
    platform: str, shapes: list[str], eight_devices: ProcessPoolExecutor
) -> None:
    eight_devices.submit(cross_replica_checks.check_sums_are_stacked, platform, shapes).result()


@pytest.mark.parametrize(
    "check",
    [
        cross_replica_checks.check_separate_sums,
        cross_replica_checks.check_no_collectives_without_axis_name,
        cross_replica_checks.check_traces_are_not_shared,
        cross_replica_checks.check_unchecked_axes_are_rejected,
    ],
)
def test_transforms_hold_on_eight_devices(check: Any, eight_devices: ProcessPoolExecutor) -> None:
    eight_devices.submit(check).result()


def test_sync_options_do_not_change_the_program_of_one_device() -> None:
    texts = []
    for options in ({}, SYNC_OPTIONS):
        model = make_net(NORM_LAYERS + LOSS_LAYERS, 6, **options)
        inputs = (
            *cross_replica_checks.init_variables(model),
            {name: a[:6] for name, a in cross_replica_checks.make_inputs().items()},
        )
        texts.append(jax.jit(cross_replica_checks.make_step(model)).lower(*inputs).as_text())
    assert texts[0] == texts[1]
