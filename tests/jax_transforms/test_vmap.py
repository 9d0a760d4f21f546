"""vmap equals a loop, over inputs and over params, and is a batch rather than a loop itself."""

from typing import Any

import jax
import numpy as np
from case import Case
from case_net import CaseNet, assert_close, cached_subject, compile_call, expect_support, parametrize_cases
from cases import COMPILED, LAYERS

COPIES = 3


@parametrize_cases(LAYERS + COMPILED[:1])
def test_vmap_equals_a_loop(case: Case, kernels: str) -> None:
    """Loss, tops, state and gradients, mapped over inputs, and over params."""
    one = cached_subject(case, kernels)
    with expect_support("vmap", one):
        for axes, points in mapped_arguments(one):
            stacked = jax.tree.map(lambda *a: np.stack(a), *points)
            arguments = tuple(s if axis == 0 else p for s, p, axis in zip(stacked, one.point, axes, strict=True))
            batched = compile_call(jax.vmap(one.value_and_grad, axes), *arguments)
            expected = jax.tree.map(lambda *a: np.stack(a), *(one.compiled(*point) for point in points))
            assert_close(batched(*arguments), expected, 1e-4 if case.is_net else 1e-5)
            assert loops(batched) <= loops(one.compiled), "a loop over the batch"


def mapped_arguments(subject: CaseNet) -> list[tuple[tuple[int | None, int | None], list[Any]]]:
    """The axes to map, and the points that make up the batch."""
    scales = [1 + 0.1 * i for i in range(COPIES)]
    inputs = [{n: a if n in subject.labels else a * np.float32(s) for n, a in subject.inputs.items()} for s in scales]
    params = [jax.tree.map(lambda a, s=s: a * np.float32(s), subject.params) for s in scales]
    both = [((None, 0), [(subject.params, x) for x in inputs]), ((0, None), [(p, subject.inputs) for p in params])]
    return [result for result, tree in zip(both, (subject.inputs, subject.params), strict=True) if tree]


def loops(executable: Any) -> int:
    return executable.as_text().count(" while(")
