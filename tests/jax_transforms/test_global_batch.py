"""Devices whose batches count as one, by `axis_name`, compute what one does of the batches joined."""

from concurrent.futures import ProcessPoolExecutor
from typing import Any

import global_batch
import pytest
from case import Case
from case_net import cached_subject, expect_support
from cases import FORKS
from global_batch_cases import CASES, EXTRA_CASES

from caffejax.layers import LayerType, type_of
from caffejax.schema import read_net


def type_of_case(case: Case) -> LayerType:
    return type_of(read_net(case.text(3)).layer[-1])


def make_test_params() -> list[Any]:
    """Return each case with 4 devices, and cases with sums over rows also with 2 and 8, and by rules."""
    result = []
    for case in CASES:
        kind = type_of_case(case)
        if case.random or kind.on_host:
            continue
        counts = case in EXTRA_CASES or kind.signature.loss or getattr(kind.implementation, "stateful", False)
        if case in FORKS and (
            kind.traits.elementwise or kind.traits.row_wise
        ):  # rows that know nothing of each other are asked under jax.shard_map as it is
            continue
        marks = [pytest.mark.long] if not counts or (case in FORKS and case not in EXTRA_CASES) else []
        ways = ["autodiff"]
        if counts and kind.gradient.backward is not None and not kind.gradient.overrides_autodiff:
            ways.append("rules")
        for devices in (2, 4, 8) if case in EXTRA_CASES else (4,):
            more = [pytest.mark.long] if devices != 4 and not marks else marks
            result.append(pytest.param(case, devices, ways, marks=more, id="-".join([case.name, str(devices), *ways])))
    return result


@pytest.mark.parametrize(("case", "devices", "ways"), make_test_params())
def test_sharded_results_equal_one_device(
    case: Case, devices: int, ways: list[str], eight_devices: ProcessPoolExecutor
) -> None:
    with expect_support("joint_batch", cached_subject(case, "fast")):
        eight_devices.submit(global_batch.check, case.name, devices, ways).result()
