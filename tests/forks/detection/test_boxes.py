"""Non-maximum suppression selects the same boxes as a loop over all boxes."""

from contextlib import nullcontext
from functools import cache, partial
from typing import Any

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from caffejax.forks.detection.boxes import non_max_suppression, suppress_without_loops
from forks.detection.sequential_nms import suppress_sequentially

CASES = {
    "SSD": {"threshold": 0.45},
    "py-faster-rcnn": {"threshold": 0.3, "side_offset": 1.0},
    "decreasing threshold": {"threshold": 0.9, "eta": 0.9},
    "equal overlap suppresses": {"threshold": 0.5, "suppress_equal": True},
    "max_selected": {"threshold": 0.6, "max_selected": 5},
}


@cache
def compile_suppression(case: str, with_loops: bool) -> Any:
    """Compile one program for all examples."""
    program = jax.jit(jax.vmap(partial(non_max_suppression, **CASES[case])))
    with nullcontext() if with_loops else suppress_without_loops():
        return program.lower(
            *(jax.ShapeDtypeStruct((3, 40, *n), t) for n, t in (((4,), "float32"), ((), bool)))
        ).compile()


@pytest.mark.parametrize("with_loops", [True, False])
@pytest.mark.parametrize("case", CASES)
@given(seed=st.integers(0, 2**31), valid_fraction=st.floats(0, 1), size=st.sampled_from([4, 30, 100]))
@settings(max_examples=25)
def test_selected_boxes_equal_sequential_suppression(
    case: str, with_loops: bool, seed: int, valid_fraction: float, size: int
) -> None:
    random = np.random.default_rng(seed)
    # whole numbers, so that boxes are equal and overlaps at the threshold
    corners = random.integers(-size // 4, size, (3, 2, 40, 2))
    boxes = np.float32(np.concatenate([corners.min(1), corners.max(1)], axis=-1))
    boxes[random.uniform(size=boxes.shape) < 0.01] = np.nan
    valid = random.uniform(size=boxes.shape[:2]) < valid_fraction
    masks = np.asarray(compile_suppression(case, with_loops)(boxes, valid))
    for mask, image_boxes, image_valid in zip(masks, boxes, valid, strict=True):
        assert np.flatnonzero(mask).tolist() == suppress_sequentially(image_boxes, image_valid, **CASES[case])
