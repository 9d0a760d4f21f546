"""The check of gradients draws bottoms of SmoothL1Loss for which the loss is not zero."""

from typing import Any

import numpy as np
import pytest

from caffejax import check_gradients


@pytest.mark.parametrize("bottoms", [[(2, 4)] * 4, [(2, 4), (2, 4), np.zeros((2, 4)), np.zeros((2, 4))]])
def test_losses_are_not_zero_for_lack_of_labels(bottoms: Any) -> None:
    report = check_gradients("SmoothL1Loss", "", bottoms=bottoms, samples=4)
    assert report.ok, report
    assert not any(row.zero for row in report.rows), report
