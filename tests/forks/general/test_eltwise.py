"""Tests of Eltwise with one bottom."""

import numpy as np
import pytest

from caffejax.base.errors import GraphError
from caffejax.core.program.net import Net
from layer_nets import first_top, net_text
from layer_suite import IMAGE, fork_properties, layer_case, recorded

test_recorded = recorded("Eltwise", family="general")
test_properties = fork_properties(
    layer_case("Eltwise", "eltwise_param { operation: SUM coeff: -0.5 }", IMAGE, name="one_bottom")
)


def test_one_bottom_is_scaled() -> None:
    x = np.arange(6, dtype=np.float32).reshape(1, 6)
    np.testing.assert_array_equal(first_top("Eltwise", "eltwise_param { coeff: 0.25 }", x), x / 4)
    np.testing.assert_array_equal(first_top("Eltwise", "", x), x)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("operation: PROD", "operation PROD needs 2 bottoms or more, but there is 1"),
        ("operation: MAX", "operation MAX needs 2 bottoms or more, but there is 1"),
        ("coeff: 1 coeff: 2", "coeff must be set once for each bottom, or not at all: 1 times, not 2"),
    ],
)
def test_invalid_settings_are_refused(text: str, message: str) -> None:
    with pytest.raises(GraphError, match=rf"layer 'layer' \(Eltwise\): .*{message}"):
        Net(net_text("Eltwise", f"eltwise_param {{ {text} }}", [(2, 3)]))
