"""DetectionOutput on NumPy arrays gives the results of the compiled forward function."""

import itertools

import numpy as np
import pytest

from caffejax.base.errors import LayerError
from caffejax.core.program.net import Net
from caffejax.cpu.kernels import onednn_program
from layer_nets import assert_host_equals_compiled, find_host_form, net_text

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


def test_host_forward_refuses_invalid_bottoms() -> None:
    net = Net(net_text("DetectionOutput", "detection_output_param { num_classes: 3 }", [(1, 36), (1, 27), (1, 2, 36)]))
    context = net.graph.layer("layer").context
    invalid_bottoms = [np.zeros(shape, np.float32) for shape in ((1, 36), (1, 26), (1, 2, 36))]
    form = find_host_form(context.type)
    assert form is not None
    with pytest.raises(LayerError, match="27"):
        form(context, *invalid_bottoms)
