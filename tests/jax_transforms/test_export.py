"""Exported functions: for each platform, for any number of rows, and run without caffejax."""

from concurrent.futures import ProcessPoolExecutor
from typing import Any

import jax
import jax.export
import pytest
from case import Case
from case_net import CaseNet, assert_close, cached_subject, expect_support, parametrize_cases
from cases import COMPILED, LAYERS, LOWERED
from fresh_processes import call_exported

from caffejax.layers import layer_types
from caffejax.schema import read_net
from golden_cases import KERNEL_TYPES

PLATFORMS = ("cpu", "cuda", "tpu")


def export_subject(subject: CaseNet, inputs: Any, *platforms: str) -> jax.export.Exported:
    """Loss, tops, state and all gradients. JAX refuses what it cannot promise to run again."""

    def function(params: Any, inputs: Any) -> Any:
        by_index = {layer: {int(i): blob for i, blob in blobs.items()} for layer, blobs in params.items()}
        return with_string_keys(subject.value_and_grad(by_index, inputs))

    return jax.export.export(jax.jit(function), platforms=platforms)(with_string_keys(subject.params), inputs)


def with_string_keys(tree: Any) -> Any:
    """Return a tree in which the keys of dictionaries are strings: `jax.export` serializes no others."""
    if isinstance(tree, dict):
        return {str(key): with_string_keys(value) for key, value in tree.items()}
    return tuple(map(with_string_keys, tree)) if isinstance(tree, tuple | list) else tree


def is_exported_with_any_rows(case: Case) -> bool:
    """Return whether the next test exports the same program, because nothing depends on the number of rows."""
    types = {layer.type for layer in read_net(case.text(3)).layer} - {"Input"}
    supported = all("symbolic_batch" not in layer_types()[name].unsupported for name in types)
    return supported and not types & KERNEL_TYPES and any(case.axis(name) is not None for name in case.input_shapes)


@parametrize_cases(LAYERS + COMPILED, is_exported_with_any_rows)
def test_exported_for_all_platforms_it_runs_elsewhere(
    case: Case, kernels: str, fresh_process: ProcessPoolExecutor
) -> None:
    one = cached_subject(case, kernels)
    with expect_support("export", one):
        artifact = bytes(export_subject(one, one.inputs, *PLATFORMS).serialize())
        actual = fresh_process.submit(call_exported, artifact, with_string_keys(one.point)).result()
        assert_close(actual, with_string_keys(one.compiled(*one.point)), 1e-4)


@parametrize_cases(LAYERS + COMPILED)
def test_exported_once_it_takes_any_number_of_rows(
    case: Case, kernels: str, fresh_process: ProcessPoolExecutor
) -> None:
    one, larger = cached_subject(case, kernels), CaseNet(case, kernels, rows=5)
    with expect_support("symbolic_batch", one):
        artifact = bytes(export_subject(one, make_symbolic_inputs(one), *PLATFORMS).serialize())
        actual = fresh_process.submit(call_exported, artifact, with_string_keys(larger.point)).result()
        assert_close(actual, with_string_keys(larger.compiled(*larger.point)), 1e-4)


@pytest.mark.long
@pytest.mark.parametrize("case", LOWERED, ids=lambda case: case.name)
def test_net_is_exported(case: Case) -> None:
    """For all platforms and any number of rows, where running it would take too long."""
    one = cached_subject(case, "fast")
    assert export_subject(one, make_symbolic_inputs(one), *PLATFORMS).platforms == PLATFORMS


@pytest.mark.parametrize("platform", PLATFORMS)
@parametrize_cases([case for case in LAYERS if "Convolution" in case.name or "InnerProduct" in case.name])
def test_exported_for_one_platform_it_calls_no_library(case: Case, kernels: str, platform: str) -> None:
    """The libraries of the CPU, which another machine may not have."""
    one = cached_subject(case, kernels)
    assert "custom_call" not in export_subject(one, one.inputs, platform).mlir_module()


def make_symbolic_inputs(subject: CaseNet) -> dict[str, jax.ShapeDtypeStruct]:
    """The inputs with any number of rows."""
    (rows,) = jax.export.symbolic_shape("rows")

    def shape(name: str) -> tuple[Any, ...]:
        axis = subject.case.axis(name)
        return tuple(rows if i == axis else n for i, n in enumerate(subject.inputs[name].shape))

    return {name: jax.ShapeDtypeStruct(shape(name), array.dtype) for name, array in subject.inputs.items()}
