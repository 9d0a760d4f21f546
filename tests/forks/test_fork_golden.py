"""Every recorded case of forks' layers: forward, and the gradients by autodiff and by the hand-written rule."""

from typing import Any

import jax
import numpy as np
import pytest

from caffejax.base.errors import CaffejaxError
from caffejax.core.layers import layer_types
from caffejax.core.program.net import Net
from golden_cases import ACCEPTED_CASES, REJECTED_CASES, format_case_id, is_fork_case
from layer_nets import assert_as_recorded, parametrize_recorded


def test_every_recorded_type_is_registered() -> None:
    assert {c["type"] for c in ACCEPTED_CASES if is_fork_case(c)} <= set(layer_types())


@parametrize_recorded(is_fork=True)
def test_recorded_case(case: dict[str, Any], backward_modes: tuple[str, ...], kernels: str) -> None:
    assert_as_recorded(case, backward_modes, kernels)


@pytest.mark.parametrize("case", [c for c in REJECTED_CASES if c["type"] in layer_types()], ids=format_case_id)
def test_settings_that_a_fork_rejects_are_refused(case: dict[str, Any]) -> None:
    def run() -> None:
        net = Net(case["path"].with_suffix(".prototxt"), case["phase"])
        inputs = {name: np.ones(net.graph.blobs[name].shape) for name in net.input_names}
        net.apply(*net.init(jax.random.key(0)), inputs)

    with pytest.raises(CaffejaxError, match="layer 'layer'"):
        run()
