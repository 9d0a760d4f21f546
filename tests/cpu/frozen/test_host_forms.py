"""Layers on NumPy arrays give the results of the compiled forward function."""

from typing import Any

import numpy as np
import pytest

from caffejax.core.program.net import Net
from caffejax.cpu.frozen import constant_folding  # noqa: F401  it registers the form of Concat
from golden_cases import ACCEPTED_CASES, format_case_id, get_layer_type_of_case
from layer_nets import assert_host_equals_compiled, find_host_form

CASES_WITH_HOST_FORM = [case for case in ACCEPTED_CASES if find_host_form(get_layer_type_of_case(case))]


def test_layers_of_core_and_of_forks_have_a_form_for_the_host() -> None:
    assert {case["type"] for case in CASES_WITH_HOST_FORM} >= {"Concat", "PriorBox"}


@pytest.mark.parametrize("case", CASES_WITH_HOST_FORM, ids=format_case_id)
def test_host_form_equals_compiled_forward(case: dict[str, Any]) -> None:
    recorded = np.load(case["path"].with_suffix(".npz"))
    layer = Net(case["path"].with_suffix(".prototxt"), case["phase"]).graph.layer("layer")
    assert_host_equals_compiled(layer.context, tuple(recorded[f"bottom/{b}"] for b in layer.bottoms))
