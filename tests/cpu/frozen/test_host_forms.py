"""Shape rules of tops, and layers on NumPy arrays, give the results of the compiled forward function."""

import itertools
from typing import Any

import jax
import numpy as np
import pytest

from caffejax.base.errors import LayerError
from caffejax.core.graph import build
from caffejax.core.graph.build import infer_top_shapes
from caffejax.core.layers import Traced
from caffejax.core.layers.dispatch import forward
from caffejax.core.program.net import Net
from caffejax.cpu.kernels import onednn_program
from golden_cases import ACCEPTED_CASES, format_case_id, get_layer_type_of_case
from layer_nets import net_text


def has_attribute(case: dict[str, Any], attribute: str) -> bool:
    implementation = get_layer_type_of_case(case).implementation
    return isinstance(implementation, Traced) and getattr(implementation, attribute) is not None


CASES_WITH_TOP_SHAPES = [case for case in ACCEPTED_CASES if has_attribute(case, "top_shapes")]


def test_top_shapes_equal_the_shapes_of_forward(monkeypatch: pytest.MonkeyPatch) -> None:
    assert len({case["type"] for case in CASES_WITH_TOP_SHAPES}) > 15
    graphs = {
        format_case_id(case): Net(case["path"].with_suffix(".prototxt"), case["phase"]).graph
        for case in CASES_WITH_TOP_SHAPES
    }
    monkeypatch.setattr(build, "_shapes_by_rule", lambda *_: None)
    for case in CASES_WITH_TOP_SHAPES:
        graph = graphs[format_case_id(case)]
        for layer in graph.layers:
            if isinstance(layer.type.implementation, Traced):
                bottoms = [graph.blobs[b] for b in layer.bottoms]
                traced_tops = infer_top_shapes(layer.context, (*layer.params, *layer.recurrent_state), bottoms)
                assert traced_tops == tuple(graph.blobs[t] for t in layer.tops), format_case_id(case)


@pytest.mark.parametrize(
    ("layer_type", "text", "shapes"),
    [
        ("Concat", "", [(2, 3, 4), (2, 3, 5)]),
        ("Eltwise", "", [(2, 3), (2, 4)]),
        ("Eltwise", "eltwise_param { coeff: 1 coeff: 2 coeff: 3 }", [(2, 3), (2, 3)]),
        ("Softmax", "softmax_param { axis: 4 }", [(2, 3)]),
        ("BatchNorm", "", [(2,)]),
        ("Pooling", "pooling_param { kernel_size: 9 stride: 2 pad: 9 }", [(1, 2, 4, 4)]),
        ("Convolution", "convolution_param { num_output: 2 kernel_size: 5 }", [(1, 2, 4, 4)]),
        ("LRN", "lrn_param { norm_region: WITHIN_CHANNEL }", [(1, 2, 4)]),
        ("LRN", "lrn_param { norm_region: WITHIN_CHANNEL local_size: 4 }", [(1, 2, 4, 4)]),
        ("LRN", "lrn_param { norm_region: WITHIN_CHANNEL local_size: 9 }", [(1, 2, 1, 4)]),
        ("LRN", "lrn_param { norm_region: WITHIN_CHANNEL }", [(1, 2, 0, 4)]),
        ("DetectionOutput", "detection_output_param { num_classes: 3 }", [(1, 36), (1, 26), (1, 2, 36)]),
        ("DetectionOutput", "detection_output_param { num_classes: 3 keep_top_k: 0 }", [(1, 36), (1, 27), (1, 2, 36)]),
    ],
)
def test_top_shapes_keep_the_errors_of_forward(
    layer_type: str, text: str, shapes: list[tuple[int, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def build_message() -> str:
        try:
            return str([blob.shape for blob in Net(net_text(layer_type, text, shapes)).graph.blobs.values()])
        except Exception as error:
            return str(error)

    rule_message = build_message()
    monkeypatch.setattr(build, "_shapes_by_rule", lambda *_: None)
    assert rule_message == build_message()


def assert_host_equals_compiled(context: Any, *batches: tuple[np.ndarray, ...]) -> None:
    """Compare a layer on NumPy arrays with the compiled layer, for each tuple of bottoms."""
    compiled = jax.jit(lambda bottoms: forward(context, (), bottoms)[0])
    for bottoms in batches:
        host_top = context.type.implementation.host_forward(context, *bottoms)
        assert isinstance(host_top, np.ndarray)
        np.testing.assert_allclose(host_top, compiled(bottoms)[0], rtol=1e-5, atol=1e-6)


CASES_WITH_HOST_FORWARD = [case for case in ACCEPTED_CASES if has_attribute(case, "host_forward")]


@pytest.mark.parametrize("case", CASES_WITH_HOST_FORWARD, ids=format_case_id)
def test_host_forward_equals_compiled_forward(case: dict[str, Any]) -> None:
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


def test_host_forward_refuses_invalid_bottoms() -> None:
    net = Net(net_text("DetectionOutput", "detection_output_param { num_classes: 3 }", [(1, 36), (1, 27), (1, 2, 36)]))
    context = net.graph.layer("layer").context
    invalid_bottoms = [np.zeros(shape, np.float32) for shape in ((1, 36), (1, 26), (1, 2, 36))]
    with pytest.raises(LayerError, match="27"):
        context.type.implementation.host_forward(context, *invalid_bottoms)
