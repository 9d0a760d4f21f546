"""vmap over inputs and params equals a loop, and is computed as a batch."""

from typing import Any

import jax
import numpy as np

from .case import Case
from .case_net import CaseNet, assert_close, cached_case_net, expect_support

NUM_COPIES = 3


def vmap_equals_a_loop(case: Case, kernels: str) -> None:
    """Loss, tops, state and gradients, mapped over inputs and over params."""
    case_net = cached_case_net(case, kernels)
    with expect_support("vmap", case_net):
        for axes, points in list_mapped_arguments(case_net):
            stacked = jax.tree.map(lambda *a: np.stack(a), *points)
            arguments = tuple(s if axis == 0 else p for s, p, axis in zip(stacked, case_net.point, axes, strict=True))
            batched = jax.jit(jax.vmap(case_net.value_and_grad, axes)).lower(*arguments)
            expected = jax.tree.map(
                lambda *a: np.stack(a), *(case_net.compiled_value_and_grad(*point) for point in points)
            )
            assert_close(batched.compile()(*arguments), expected, 1e-4 if case.is_net else 1e-5)
            if not case_net.is_on_host:
                loops = count_loops(jax.jit(case_net.value_and_grad).lower(*case_net.point))
                assert count_loops(batched) <= loops, "a loop over the batch"


def list_mapped_arguments(case_net: CaseNet) -> list[tuple[tuple[int | None, int | None], list[Any]]]:
    """Return the axes to map and the points to stack, for a batch of inputs and for a batch of params."""
    scales = [1 + 0.1 * i for i in range(NUM_COPIES)]
    inputs = [
        {n: a if n in case_net.index_inputs else a * np.float32(s) for n, a in case_net.inputs.items()} for s in scales
    ]
    params = [jax.tree.map(lambda a, s=s: a * np.float32(s), case_net.params) for s in scales]
    arguments = [
        ((None, 0), [(case_net.params, x) for x in inputs]),
        ((0, None), [(p, case_net.inputs) for p in params]),
    ]
    return [result for result, tree in zip(arguments, (case_net.inputs, case_net.params), strict=True) if tree]


def count_loops(lowered: Any) -> int:
    return lowered.as_text().count("stablehlo.while")
