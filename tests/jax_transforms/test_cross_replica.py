"""Nets whose devices' batches count as one: losses that follow losses, BatchNorm, traces, what devices exchange."""

from concurrent.futures import ProcessPoolExecutor
from typing import Any

import cross_replica_checks
import jax
import pytest
from cross_replica_checks import LOSSES, NORM, SYNCED, make_net

OPTIONS: list[dict[str, Any]] = [
    {},
    {"backward": "rules"},
    {"kernels": "reference"},
    {"kernels": "reference", "backward": "rules"},
    {"remat": "auto", "memory_limit": 0},
]


@pytest.mark.parametrize("options", OPTIONS, ids=lambda o: "-".join(map(str, o.values())) or "fast")
def test_a_training_step(options: dict[str, Any], eight_devices: ProcessPoolExecutor) -> None:
    eight_devices.submit(cross_replica_checks.check_training_step, **options).result()


@pytest.mark.parametrize("backward", ["autodiff", "rules"])
def test_forward_mode(backward: str, eight_devices: ProcessPoolExecutor) -> None:
    eight_devices.submit(cross_replica_checks.check_forward_mode, backward).result()


@pytest.mark.parametrize(
    "options", [{}, {"sync_bn": True}, {"axis_name": "data"}, {"axis_name": "other", "sync_bn": True}]
)
def test_batch_norm_of_each_device(options: dict[str, Any], eight_devices: ProcessPoolExecutor) -> None:
    eight_devices.submit(cross_replica_checks.check_unsynced_batch_norm, **options).result()


@pytest.mark.parametrize(("options", "n_all_reduces"), [({}, 0), ({"axis_name": "data"}, 0), (SYNCED, 1)])
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
        cross_replica_checks.check_unchecked_axes_are_refused,
    ],
)
def test_transforms_hold_on_eight_devices(check: Any, eight_devices: ProcessPoolExecutor) -> None:
    eight_devices.submit(check).result()


def test_on_one_device_the_program_is_the_same() -> None:
    texts = []
    for options in ({}, SYNCED):
        model = make_net(NORM + LOSSES, 6, **options)
        inputs = (
            *cross_replica_checks.init_variables(model),
            {name: a[:6] for name, a in cross_replica_checks.make_inputs().items()},
        )
        texts.append(jax.jit(cross_replica_checks.make_step(model)).lower(*inputs).as_text())
    assert texts[0] == texts[1]
