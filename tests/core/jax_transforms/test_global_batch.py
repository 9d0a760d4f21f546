"""With `axis_name`, devices compute the results of one device for the joined batch."""

from concurrent.futures import ProcessPoolExecutor
from typing import Any

import global_batch
import pytest
from case import Case
from case_net import cached_case_net, expect_support
from cases import FORK_CASES
from global_batch_cases import CASES, EXTRA_CASES

from caffejax.core.layers import LayerType, type_of
from caffejax.core.schema import read_net


def type_of_case(case: Case) -> LayerType:
    return type_of(read_net(case.prototxt(3)).layer[-1])


def list_test_params() -> list[Any]:
    """Return each case with 4 devices; extra cases also with 2 and 8, and cases that sum over rows also with rules."""
    params = []
    for case in CASES:
        layer_type = type_of_case(case)
        if case.random or layer_type.on_host:
            continue
        sums_over_rows = (
            case in EXTRA_CASES or layer_type.signature.loss or getattr(layer_type.implementation, "stateful", False)
        )
        if case in FORK_CASES and (
            layer_type.traits.elementwise or layer_type.traits.row_wise
        ):  # rows that know nothing of each other are asked under jax.shard_map as it is
            continue
        marks = [pytest.mark.long] if not sums_over_rows or (case in FORK_CASES and case not in EXTRA_CASES) else []
        backward_modes = ["autodiff"]
        if sums_over_rows and layer_type.gradient.backward is not None and not layer_type.gradient.overrides_autodiff:
            backward_modes.append("rules")
        for num_devices in (2, 4, 8) if case in EXTRA_CASES else (4,):
            extra_marks = [pytest.mark.long] if num_devices != 4 and not marks else marks
            params.append(
                pytest.param(
                    case,
                    num_devices,
                    backward_modes,
                    marks=extra_marks,
                    id="-".join([case.name, str(num_devices), *backward_modes]),
                )
            )
    return params


@pytest.mark.parametrize(("case", "num_devices", "backward_modes"), list_test_params())
def test_sharded_results_equal_one_device(
    case: Case, num_devices: int, backward_modes: list[str], eight_devices: ProcessPoolExecutor
) -> None:
    case_net = cached_case_net(case, "fast")
    if case_net.is_on_host:
        pytest.skip("no type that selects rows on the host joins the batches of devices")
    with expect_support("joint_batch", case_net):
        eight_devices.submit(global_batch.check, case.name, num_devices, backward_modes).result()
