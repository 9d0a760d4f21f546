"""Exported functions: for each platform, for any number of rows, and run without caffejax."""

from concurrent.futures import ProcessPoolExecutor
from typing import Any

import jax
import jax.export

from caffejax.core.layers import layer_types
from fresh_processes import call_exported
from golden_cases import KERNEL_TYPES

from .case import Case
from .case_net import CaseNet, assert_close, cached_case_net, expect_support

PLATFORMS = ("cpu", "cuda", "tpu")


def export_case_net(case_net: CaseNet, inputs: Any, *platforms: str) -> jax.export.Exported:
    """Export a function that returns loss, tops, state and all gradients."""
    return jax.export.export(jax.jit(case_net.value_and_grad), platforms=platforms)(case_net.params, inputs)


def is_exported_with_symbolic_batch(case: Case) -> bool:
    """Return whether the next question exports the same program, because nothing depends on the number of rows."""
    supported = all("symbolic_batch" not in layer_types()[name].unsupported for name in case.types)
    return (
        supported
        and not case.types & KERNEL_TYPES
        and any(case.row_axis(name) is not None for name in case.input_shapes)
    )


def artifact_for_all_platforms_runs_without_caffejax(
    case: Case, kernels: str, fresh_process: ProcessPoolExecutor
) -> None:
    case_net = cached_case_net(case, kernels)
    with expect_support("export", case_net):
        artifact = bytes(export_case_net(case_net, case_net.inputs, *PLATFORMS).serialize())
        actual = fresh_process.submit(call_exported, artifact, case_net.point).result()
        assert_close(actual, case_net.compiled_value_and_grad(*case_net.point), 1e-4)


def artifact_with_symbolic_batch_accepts_any_number_of_rows(
    case: Case, kernels: str, fresh_process: ProcessPoolExecutor
) -> None:
    case_net, larger_net = cached_case_net(case, kernels), CaseNet(case, kernels, rows=5)
    with expect_support("symbolic_batch", case_net):
        artifact = bytes(export_case_net(case_net, make_symbolic_inputs(case_net), *PLATFORMS).serialize())
        actual = fresh_process.submit(call_exported, artifact, larger_net.point).result()
        assert_close(actual, larger_net.compiled_value_and_grad(*larger_net.point), 1e-4)


def net_exports_with_symbolic_batch_for_all_platforms(case: Case) -> None:
    """The exported functions are not run: that would take too long."""
    case_net = cached_case_net(case, "fast")
    assert export_case_net(case_net, make_symbolic_inputs(case_net), *PLATFORMS).platforms == PLATFORMS


def artifact_for_one_platform_calls_no_foreign_functions(case: Case, kernels: str) -> None:
    """Foreign functions are in libraries of this CPU, which another machine may not have."""
    case_net = cached_case_net(case, kernels)
    for platform in PLATFORMS:
        assert "custom_call" not in export_case_net(case_net, case_net.inputs, platform).mlir_module(), platform


def make_symbolic_inputs(case_net: CaseNet) -> dict[str, jax.ShapeDtypeStruct]:
    """Return the shapes of the inputs with a symbolic batch size."""
    (rows,) = jax.export.symbolic_shape("rows")

    def make_shape(name: str) -> tuple[Any, ...]:
        axis = case_net.case.row_axis(name)
        return tuple(rows if i == axis else n for i, n in enumerate(case_net.inputs[name].shape))

    return {name: jax.ShapeDtypeStruct(make_shape(name), array.dtype) for name, array in case_net.inputs.items()}
