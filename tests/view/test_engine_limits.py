"""Nets that the layout library cannot follow."""

import pytest

from caffejax.errors import CaffejaxError
from caffejax.view.engine import lay_out


def test_a_path_too_long_for_the_library_is_an_error_with_a_remedy() -> None:
    pytest.importorskip("py_mini_racer")
    n = 6000
    edges = [(i, i + 1) for i in range(n - 1)]
    with pytest.raises(CaffejaxError, match="its longest path is too long; draw one phase"):
        lay_out([(1, 1)] * n, edges, [(0, 0)] * len(edges), "LR")
