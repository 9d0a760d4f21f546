"""The traits that each type declares are true, and the tests of gradcheck find traits that are not."""

from dataclasses import fields

import jax
import numpy as np
import pytest
from case import Case
from case_net import SEED, CaseNet, to_numpy
from cases import FORK_CASES, LAYER_CASES

from caffejax import LayerTraits
from caffejax.base.variables import Variables
from caffejax.core.gradcheck import traits
from caffejax.core.gradcheck.check_gradients import make_cases

BVLC_NAMES = {c.name.partition("_")[0]: c.name for c in reversed(LAYER_CASES) if c not in FORK_CASES}  # one of each
CASES = [
    pytest.param(c, id=c.name, marks=[] if c.name in BVLC_NAMES.values() else [pytest.mark.long])
    for c in dict.fromkeys([*LAYER_CASES, *FORK_CASES])
]


def find_untrue_traits(case_net: CaseNet) -> list[tuple[str, str]]:
    with jax.enable_x64(True):
        params, state, inputs = to_numpy((case_net.params, case_net.state, case_net.inputs), np.float64)
        random, key = np.random.default_rng(0), jax.random.key(SEED)
        pairs = make_cases(case_net.net, None, Variables(params, state), inputs, random, key)
        return [problem for _, layer_case in pairs for problem in traits.find_untrue_traits(layer_case)]


@pytest.mark.parametrize("case", CASES)
def test_each_declared_trait_is_true(case: Case) -> None:
    case_net = CaseNet(case)
    assert find_untrue_traits(case_net) == []
    types_with_names = [layer.type for layer in case_net.net.graph.layers if len(layer.params) > 1]
    assert [t.name for t in types_with_names if not (t.traits.blob_names or t.instance)] == []


def test_every_trait_has_a_test() -> None:
    assert {field.name for field in fields(LayerTraits)} == {*traits._TESTS, "window"}  # tested by spatial_map
