"""Layers on NumPy arrays give the results of the compiled forward function."""

import itertools
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest

from caffejax.base.errors import LayerError
from caffejax.core.layers import Traced
from caffejax.core.layers.dispatch import forward
from caffejax.core.ops.implementations import find_form
from caffejax.core.program.net import Net
from caffejax.cpu.frozen import constant_folding  # noqa: F401  it registers the form of Concat
from caffejax.cpu.kernels import onednn_program
from golden_cases import ACCEPTED_CASES, format_case_id, get_layer_type_of_case
from layer_nets import net_text


def find_host_form(layer_type: Any) -> Callable[..., Any] | None:
    implementation = layer_type.implementation
    return find_form(implementation.forward, "host") if isinstance(implementation, Traced) else None


def assert_host_equals_compiled(context: Any, *batches: tuple[np.ndarray, ...]) -> None:
    """Compare a layer on NumPy arrays with the compiled layer, for each tuple of bottoms."""
    compiled = jax.jit(lambda bottoms: forward(context, (), bottoms)[0])
    for bottoms in batches:
        form = find_host_form(context.type)
        assert form is not None
        host_top = form(context, *bottoms)
        assert isinstance(host_top, np.ndarray)
        np.testing.assert_allclose(host_top, compiled(bottoms)[0], rtol=1e-5, atol=1e-6)


CASES_WITH_HOST_FORM = [case for case in ACCEPTED_CASES if find_host_form(get_layer_type_of_case(case))]


def test_layers_of_core_and_of_forks_have_a_form_for_the_host() -> None:
    assert {case["type"] for case in CASES_WITH_HOST_FORM} >= {"Concat", "PriorBox"}


@pytest.mark.parametrize("case", CASES_WITH_HOST_FORM, ids=format_case_id)
def test_host_form_equals_compiled_forward(case: dict[str, Any]) -> None:
    recorded = np.load(case["path"].with_suffix(".npz"))
    layer = Net(case["path"].with_suffix(".prototxt"), case["phase"]).graph.layer("layer")
    assert_host_equals_compiled(layer.context, tuple(recorded[f"bottom/{b}"] for b in layer.bottoms))


SETTINGS = list(
    itertools.product(
        ("", "confidence_threshold: 0.3"),
        ("keep_top_k: -1", "keep_top_k: 5"),
        ("", "nms_param { nms_threshold: 0.2 }", "nms_param { nms_threshold: 0.7 top_k: 6 eta: 0.8 }"),
        ("share_location: true", "share_location: false background_label_id: -1"),
        ("code_type: CENTER_SIZE", "code_type: CORNER variance_encoded_in_target: true"),
    )
)


@pytest.mark.skipif(not onednn_program.is_available(), reason="needs the compiled kernels")
@pytest.mark.parametrize("settings", SETTINGS[::7], ids=" ".join)
def test_host_detection_output_equals_compiled_detection_output(settings: tuple[str, ...]) -> None:
    param = f"detection_output_param {{ num_classes: 3 {' '.join(settings)} }}"
    num_groups = 3 if "share_location: false" in param else 1
    num_images, num_priors = 2, 12
    net = Net(
        net_text(
            "DetectionOutput",
            param,
            [(num_images, num_priors * num_groups * 4), (num_images, num_priors * 3), (1, 2, num_priors * 4)],
        )
    )
    batches = []
    for seed, scores in itertools.product(range(3), ("spread", "equal", "none")):
        random = np.random.default_rng(seed)
        low = random.uniform(0, 0.6, (num_priors, 2))
        boxes = np.concatenate(
            [low, low + random.uniform(-0.05, 0.4, (num_priors, 2))], 1
        )  # some are turned inside out
        prior = np.stack([boxes.ravel(), np.full(num_priors * 4, 0.1)])[None].astype(np.float32)
        location = random.normal(0, 0.5, (num_images, num_priors * num_groups * 4)).astype(np.float32)
        confidence = random.uniform(0, 1, (num_images, num_priors * 3)).astype(np.float32)
        if scores == "equal":
            confidence = np.round(confidence, 1)
        batches.append((location, confidence * 0 - 1 if scores == "none" else confidence, prior))
    assert_host_equals_compiled(net.graph.layer("layer").context, *batches)


def test_host_form_refuses_invalid_bottoms() -> None:
    net = Net(net_text("DetectionOutput", "detection_output_param { num_classes: 3 }", [(1, 36), (1, 27), (1, 2, 36)]))
    context = net.graph.layer("layer").context
    invalid_bottoms = [np.zeros(shape, np.float32) for shape in ((1, 36), (1, 26), (1, 2, 36))]
    form = find_host_form(context.type)
    assert form is not None
    with pytest.raises(LayerError, match="27"):
        form(context, *invalid_bottoms)
