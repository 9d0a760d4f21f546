"""The traits that each type declares are true."""

import jax
import numpy as np

from caffejax.base.variables import Variables
from caffejax.core.gradcheck import traits
from caffejax.core.gradcheck.cases import make_cases

from .case import Case
from .case_net import SEED, CaseNet, to_numpy


def find_untrue_traits(case_net: CaseNet) -> list[tuple[str, str]]:
    with jax.enable_x64(True):
        params, state, inputs = to_numpy((case_net.params, case_net.state, case_net.inputs), np.float64)
        random, key = np.random.default_rng(0), jax.random.key(SEED)
        pairs = make_cases(case_net.net, None, Variables(params, state), inputs, random, key)
        return [problem for _, layer_case in pairs for problem in traits.find_untrue_traits(layer_case)]


def each_declared_trait_is_true(case: Case) -> None:
    case_net = CaseNet(case)
    assert find_untrue_traits(case_net) == []
    types_with_names = [layer.type for layer in case_net.net.graph.layers if len(layer.params) > 1]
    assert [t.name for t in types_with_names if not (t.traits.blob_names or t.instance)] == []
