"""Random combinations of layers: each exported form gives the results of the net."""

from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings

from caffejax import Net
from caffejax.export import make_inference_model
from export.compare_outputs import FORMS, TOLERANCE
from export.random_nets import draw_nets
from export.random_params import draw_variables
from export.run_exports import assess_subject

SETTINGS = settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))


@SETTINGS
@given(draw_nets())
def test_random_nets_are_equal_in_all_forms(net_and_outputs: tuple[str, tuple[str, ...]]) -> None:
    _check(*net_and_outputs)


@pytest.mark.long
@settings(SETTINGS, max_examples=80)
@given(draw_nets(max_layers=12))
def test_many_random_nets_are_equal_in_all_forms(net_and_outputs: tuple[str, tuple[str, ...]]) -> None:
    _check(*net_and_outputs)


def _check(text: str, outputs: tuple[str, ...]) -> None:
    net = Net(text, "TEST")
    assume(not _has_arbitrary_positions(net))
    result = assess_subject(make_inference_model(net, draw_variables(net), outputs))
    for form in FORMS:
        assert _is_refused(result[form]) or not _large_errors(result, form), form


# their outputs have many maxima that are equal but for rounding, at 1 or at 0
_SATURATING_TYPES = {"Sigmoid", "TanH", "Softmax"}


def _has_arbitrary_positions(net: Net) -> bool:
    """Return whether a Pooling layer outputs the positions of maxima that rounding may choose.

    That is so behind layers that saturate, and where the numbers are such positions themselves.
    """
    blobs = set[str]()
    for layer in net.graph.layers:
        depends = layer.type.name in _SATURATING_TYPES or not blobs.isdisjoint(layer.bottoms)
        outputs_positions = layer.type.name == "Pooling" and len(layer.tops) > 1
        if depends and outputs_positions:
            return True
        blobs.update(layer.tops if depends else layer.tops[1:] if outputs_positions else ())
    return False


def _is_refused(report: Any) -> bool:
    """Return whether the net was refused with the name of a layer."""
    return "refused" in report and "layer '" in report["refused"]


def _large_errors(report: Any, form: str) -> dict[str, float]:
    """The outputs that differ by more than they do where inputs are nudged."""
    sways = report["sways"]
    return {name: error for name, error in report[form].items() if not error <= max(TOLERANCE, 2 * sways[name])}
