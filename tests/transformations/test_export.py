"""Exported functions: for each platform, for any number of rows, and run where there is no caffejax."""

import re
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import jax
import jax.export
import pytest
from cases import COMPILED, LAYERS, LOWERED, Case
from processes import reload
from subject import Subject, asked, assert_close, each, subject

PLATFORMS = ("cpu", "cuda", "tpu")


def exported(one: Subject, inputs: Any) -> bytes:
    """Loss, tops, state and all gradients, for all platforms. JAX refuses what it cannot promise to run again."""
    function = jax.jit(one.value_and_grad)
    for platform in PLATFORMS:  # for one alone there is nothing to choose from when it runs
        text = jax.export.export(function, platforms=[platform])(one.params, inputs).mlir_module()
        assert not re.findall(r"custom_call @(?:caffejax\w*|\w*dnn\w*)", text), platform
    return bytes(jax.export.export(function, platforms=PLATFORMS)(one.params, inputs).serialize())


@each(LAYERS + COMPILED)
def test_exported_for_all_platforms_it_runs_elsewhere(
    case: Case, kernels: str, fresh_process: ProcessPoolExecutor
) -> None:
    one = subject(case, kernels)
    with asked("export", one):
        found = fresh_process.submit(reload, exported(one, one.inputs), one.point).result()
        assert_close(found, one.compiled(*one.point), 1e-4)


@each(LAYERS + COMPILED)
def test_exported_once_it_takes_any_number_of_rows(
    case: Case, kernels: str, fresh_process: ProcessPoolExecutor
) -> None:
    one, larger = subject(case, kernels), Subject(case, kernels, rows=5)
    with asked("symbolic_batch", one):
        found = fresh_process.submit(reload, exported(one, symbolic(one)), larger.point).result()
        assert_close(found, larger.compiled(*larger.point), 1e-4)


@pytest.mark.parametrize("case", LOWERED, ids=lambda case: case.name)
def test_net_is_exported(case: Case) -> None:
    """Where running it would take too long."""
    one = subject(case, "fast")
    assert exported(one, symbolic(one))


def symbolic(one: Subject) -> dict[str, jax.ShapeDtypeStruct]:
    """The inputs with any number of rows."""
    (rows,) = jax.export.symbolic_shape("rows")

    def shape(name: str) -> tuple[Any, ...]:
        axis = one.case.axis(name)
        return tuple(rows if i == axis else n for i, n in enumerate(one.inputs[name].shape))

    return {name: jax.ShapeDtypeStruct(shape(name), array.dtype) for name, array in one.inputs.items()}
