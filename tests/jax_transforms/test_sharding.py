"""On 8 simulated devices: what one gives, values and gradients, without rows going from device to device."""

from concurrent.futures import ProcessPoolExecutor

import mesh_checks
from case import Case
from case_net import cached_subject, expect_support, parametrize_cases
from cases import COMPILED, LAYERS


@parametrize_cases(LAYERS + COMPILED)
def test_jit_over_a_mesh(case: Case, kernels: str, eight_devices: ProcessPoolExecutor) -> None:
    with expect_support("shard", cached_subject(case, kernels)):
        eight_devices.submit(mesh_checks.check_jit, case.name, kernels).result()


@parametrize_cases(LAYERS + COMPILED[:1])
def test_shard_map(case: Case, kernels: str, eight_devices: ProcessPoolExecutor) -> None:
    with expect_support("shard_map", cached_subject(case, kernels)):
        eight_devices.submit(mesh_checks.check_shard_map, case.name, kernels).result()
