"""The order of equal scores, compared with the fork's sequential quicksort."""

import jax
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from caffejax.forks.rcnn.rpn_proposals import quicksort_order

LENGTH = 24
compute_order = jax.jit(quicksort_order)


def quicksort_like_c(scores: list[float]) -> list[int]:
    """Return the indices of the scores in descending order, by the fork's quicksort with the first element as pivot."""
    order = list(range(len(scores)))

    def sort_part(start: int, end: int) -> None:
        if start >= end:
            return
        pivot, left, right = scores[order[start]], start + 1, end
        while left <= right:
            while left <= end and scores[order[left]] >= pivot:
                left += 1
            while right > start and scores[order[right]] <= pivot:
                right -= 1
            if left <= right:
                order[left], order[right] = order[right], order[left]
                left, right = left + 1, right - 1
        order[start], order[right] = order[right], order[start]
        sort_part(start, right - 1)
        sort_part(right + 1, end)

    sort_part(0, len(scores) - 1)
    return order


@settings(max_examples=200)
@given(st.lists(st.integers(0, 6), min_size=LENGTH, max_size=LENGTH))
def test_order_of_equal_scores_is_that_of_the_forks_quicksort(scores: list[int]) -> None:
    assert compute_order(np.asarray(scores, np.float32)).tolist() == quicksort_like_c(scores)


def test_order_of_distinct_scores_is_descending() -> None:
    scores = np.random.default_rng(0).permutation(LENGTH).astype(np.float32)
    assert compute_order(scores).tolist() == np.argsort(-scores).tolist()
