"""On 8 simulated devices, values and gradients equal those of one device, and no rows move between devices."""

from concurrent.futures import ProcessPoolExecutor

import mesh_checks
import pytest
from case import Case
from case_net import cached_case_net, expect_support, parametrize_cases
from cases import COMPILED_NETS, LAYER_CASES


@parametrize_cases(LAYER_CASES + COMPILED_NETS)
def test_jit_over_a_mesh_equals_one_device(case: Case, kernels: str, eight_devices: ProcessPoolExecutor) -> None:
    with expect_support("shard", cached_case_net(case, kernels)):
        eight_devices.submit(mesh_checks.check_jit, case.name, kernels).result()


@parametrize_cases(LAYER_CASES + COMPILED_NETS[:1])
def test_shard_map_equals_a_loop_over_shards(case: Case, kernels: str, eight_devices: ProcessPoolExecutor) -> None:
    with expect_support("shard_map", cached_case_net(case, kernels)):
        eight_devices.submit(mesh_checks.check_shard_map, case.name, kernels).result()


@parametrize_cases(LAYER_CASES + COMPILED_NETS[:1])
def test_gradients_of_sharded_examples_exchange_nothing(
    case: Case, kernels: str, eight_devices: ProcessPoolExecutor
) -> None:
    if reason := cached_case_net(case, kernels).unsupported_reason("shard"):
        pytest.skip(reason)
    eight_devices.submit(mesh_checks.check_gradients_of_examples, case.name, kernels).result()
