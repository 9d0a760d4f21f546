"""NaN in a bottom comes out of element-wise layers and losses, unless the code of Caffe or of a fork hides it."""

from collections.abc import Iterator
from pathlib import Path

import jax
import numpy as np
import pytest

from layer_suite import list_cases
from layer_suite.case import Case
from layer_suite.case_net import SEED, CaseNet

HIDDEN = {
    "Threshold",  # compares
    "HingeLoss",  # max(0, NaN) is 0 in C++
    "GeneralTripletLoss",  # likewise
    "GeneralTripletLoss_hardest",
    "Eltwise_max",  # takes the other bottom
    "L1Loss_flow",  # leaves out NaN, which marks what is unknown
    "MemoryLoss",  # always 0
    "MultiBoxLoss_predictions",  # boxes of NaN match no object
}


def find_layers_that_hide_nan(cases: list[Case]) -> Iterator[str]:
    for case in cases:
        case_net = CaseNet(case)
        layer_type = case_net.net.graph.layers[-1].type
        if not (layer_type.traits.elementwise or layer_type.signature.loss) or case.is_net:
            continue
        inputs = case_net.inputs | {"b0": np.full_like(case_net.inputs["b0"], np.nan)}
        tops, _ = case_net.net.apply(case_net.params, case_net.state, inputs, key=jax.random.key(SEED))
        if all(np.isfinite(top).all() for top in tops.values()):
            yield case.name


@pytest.mark.parametrize("of_forks", [False, pytest.param(True, marks=pytest.mark.long)])
def test_nan_comes_out_where_it_does_in_caffe(of_forks: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # HDF5Output writes files
    cases = [case for case in list_cases() if is_of_fork(case) == of_forks]
    assert set(find_layers_that_hide_nan(cases)) == HIDDEN & {case.name for case in cases}


def is_of_fork(case: Case) -> bool:
    return CaseNet(case).net.graph.layers[-1].type.docs.origin != "BVLC"
