"""Shape rules of tops give the shapes and errors of the forward function."""

from typing import Any

import pytest

from caffejax.core.graph import build
from caffejax.core.graph.build import infer_top_shapes
from caffejax.core.layers import Traced
from caffejax.core.program.net import Net
from golden_cases import ACCEPTED_CASES, format_case_id, get_layer_type_of_case
from layer_nets import net_text


def has_shape_rule(case: dict[str, Any]) -> bool:
    implementation = get_layer_type_of_case(case).implementation
    return isinstance(implementation, Traced) and implementation.top_shapes is not None


CASES_WITH_TOP_SHAPES = [case for case in ACCEPTED_CASES if has_shape_rule(case)]


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
