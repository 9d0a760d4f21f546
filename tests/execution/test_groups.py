"""Which layers to run twice: the groups chosen are the best of all."""

import itertools
from collections.abc import Iterator

import numpy as np
import pytest

from caffejax.execution import Step
from caffejax.execution.groups import choose_groups
from caffejax.execution.units import Unit, Value


def cut_anywhere(n: int) -> Iterator[list[int]]:
    for count in range(n):
        for cuts in itertools.combinations(range(1, n), count):
            yield [0, *cuts]


@pytest.mark.parametrize("seed", range(8))
def test_the_groups_chosen_are_the_best(seed: int) -> None:
    random = np.random.default_rng(seed)
    n = 8
    units = [Unit((Step((i,)),), *map(int, random.integers(1, 50, 2))) for i in range(n)]  # type: ignore[arg-type]
    made = random.integers(0, n - 1, 10)
    values = [Value(int(random.integers(1, 30)), int(m), int(random.integers(m + 1, n))) for m in made]

    def peak(starts: list[int]) -> int:
        held, most = 0, 0
        for a, b in zip(starts, [*starts[1:], n], strict=True):
            most = max(most, held + sum(u.residuals for u in units[a:b]) + max(u.passing for u in units[a:b]))
            held += sum(v.bytes for v in values if a <= v.made < b <= v.last)
        return most

    lowest = min(map(peak, cut_anywhere(n)))
    for limit in (0, lowest, (lowest + peak([0])) // 2, peak([0])):
        chosen = choose_groups(units, values, limit)
        starts = [int(group[0].layers[0]) for group in chosen.groups]  # type: ignore[call-overload]
        fits = [s for s in cut_anywhere(n) if peak(s) <= max(limit, lowest)]
        assert (chosen.peak, chosen.fits, chosen.without) == (peak(starts), limit >= lowest, peak([0]))
        assert chosen.peak <= max(limit, lowest)
        assert chosen.recomputed == min(s[-1] for s in fits)
