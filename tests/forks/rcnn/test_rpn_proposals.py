"""Tests of Proposal and Python."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from caffejax.base.errors import CaffejaxError
from caffejax.core.layers.param_str import parse_param_str
from caffejax.forks.rcnn.rpn_proposals import ProposalLimits, decode_boxes, encode_boxes, make_base_anchors, propose
from forks.detection.sequential_nms import suppress_sequentially
from layer_nets import draw_settings, format_param, run_layer
from layer_suite import Shape, fork_properties, layer_case, recorded
from rcnn.cases import MAP_SHAPE, SCORES, draw_image_info, draw_overhanging_rois, make_net, python_case, run_net

DELTAS: Shape = (1, 36, 4, 4)

test_recorded = recorded("Proposal", "Python", family="rcnn")
test_properties = fork_properties(
    layer_case(
        "Proposal",
        "proposal_param { ratio: 0.5 ratio: 1 ratio: 2 scale: 1 scale: 2 scale: 3 post_nms_topn: 7 min_size: 4 }",
        SCORES,
        DELTAS,
        (1, 4),
        tops=2,
        samplers={"b2": draw_image_info},
    ),
    python_case(
        "rpn.proposal_layer",
        "ProposalLayer",
        "{'feat_stride': 16, 'scales': [1, 2, 3], 'rpn_post_nms_top_n': 7}",
        SCORES,
        DELTAS,
        (1, 3),
        samplers={"b2": draw_image_info},
    ),
)


F = np.float32


def proposals_by_loops(s: dict[str, Any], scores: np.ndarray, deltas: np.ndarray, info: np.ndarray) -> np.ndarray:
    """Return rows [x1, y1, x2, y2, score] of one image, best first, without boxes that are too small."""
    side, anchors = s["base_size"], []
    for ratio in s["ratio"]:
        w = math.floor(math.sqrt(side * side / ratio) + 0.5)
        h = math.floor(w * ratio + 0.5)
        anchors += [(w * scale, h * scale) for scale in s["scale"]]
    rows = []
    for k, i, j in np.ndindex(len(anchors), *scores.shape[1:]):
        w, h = anchors[k]
        dx, dy, dw, dh = deltas[4 * k : 4 * k + 4, i, j]
        center = (side - 1) / 2
        left, low = j * s["feat_stride"] + center - (w - 1) / 2, i * s["feat_stride"] + center - (h - 1) / 2
        x, y, half_w, half_h = left + w / 2 + dx * w, low + h / 2 + dy * h, math.exp(dw) * w / 2, math.exp(dh) * h / 2
        box = np.clip([x - half_w, y - half_h, x + half_w, y + half_h], 0, np.tile([info[1] - 1, info[0] - 1], 2))
        if box[2] - box[0] + 1 >= s["min_size"] * info[-1] and box[3] - box[1] + 1 >= s["min_size"] * info[2]:
            rows.append([*box, scores[len(anchors) + k, i, j]])
    rows = sorted(rows, key=lambda row: -row[4])[: s["pre_nms_topn"]]
    selected_rows: list[list[float]] = []
    for row in rows:
        if all(pixel_overlap(row, other) <= s["nms_thresh"] for other in selected_rows):
            selected_rows.append(row)
    return np.asarray(selected_rows[: s["post_nms_topn"]])


def pixel_overlap(a: Any, b: Any) -> float:
    w, h = (min(a[k + 2], b[k + 2]) - max(a[k], b[k]) + 1 for k in (0, 1))
    intersection = max(w, 0) * max(h, 0)
    return float(intersection / (sum((c[2] - c[0] + 1) * (c[3] - c[1] + 1) for c in (a, b)) - intersection))


@pytest.mark.parametrize("seed", range(6))
def test_proposal_equals_loops(seed: int) -> None:
    random = np.random.default_rng(seed)
    s = draw_settings(
        random,
        {
            "feat_stride": (16, 8),
            "base_size": (16, 10),
            "min_size": (16, 5),
            "ratio": ([1.0], [0.5, 1.0, 2.0]),
            "scale": ([2.0], [1.0, 3.0]),
            "pre_nms_topn": (30, 1000),
            "post_nms_topn": (4, 100),
            "nms_thresh": (0.7, 0.3),
        },
    )
    n, height, width = len(s["ratio"]) * len(s["scale"]), 4, 5
    scores = random.permutation(2 * n * height * width).reshape(2 * n, height, width) / (2 * n * height * width) + 0.01
    deltas = random.normal(size=(4 * n, height, width)) * 0.4
    info = np.asarray([height * s["feat_stride"], width * s["feat_stride"], 1.25, 0.75][: 3 + seed % 2])
    rois, best = run_layer(
        "Proposal", format_param("proposal_param", s), scores[None], deltas[None], info[None], tops=2
    )
    expected = proposals_by_loops(s, scores.astype(F), deltas.astype(F), info)
    valid_rows = best.ravel() > 0
    np.testing.assert_allclose(best.ravel()[valid_rows], expected[:, 4], rtol=1e-6)
    np.testing.assert_allclose(
        rois.reshape(-1, 5)[valid_rows], np.insert(expected[:, :4], 0, 0, axis=1), rtol=1e-4, atol=1e-3
    )


PYTHON_PROPOSAL_PARAM = "python_param {{ module: 'rpn.proposal_layer' layer: 'ProposalLayer' param_str: \"{}\" }}"

PROPOSAL_PARAMS = {
    "Proposal": "proposal_param { ratio: 1 scale: 2 feat_stride: 8 pre_nms_topn: 20 post_nms_topn: 16 min_size: 2 }",
    "Python": PYTHON_PROPOSAL_PARAM.format(
        "{'feat_stride': 8, 'scales': [2], 'ratios': [1], 'rpn_post_nms_top_n': 16}"
    ),
}


@given(st.integers(0, 2**31), st.floats(0, 1), st.floats(10, 200))
@settings(max_examples=50)
def test_best_boxes_come_first_and_padding_last(seed: int, valid_fraction: float, size: float) -> None:
    random = np.random.default_rng(seed)
    boxes, scores = (
        np.float32(draw_overhanging_rois(random, 40, 1, size)[:, 1:]),
        np.float32(random.permutation(40) / 40),
    )
    valid = random.uniform(size=40) < valid_fraction
    result = jax.jit(propose, static_argnums=3)(
        boxes, scores, valid, ProposalLimits(pre_nms_topn=30, post_nms_topn=8, nms_threshold=0.4)
    )
    order = np.argsort(np.where(valid, -scores, np.inf), kind="stable")[:30]
    expected = order[suppress_sequentially(boxes[order], valid[order], 0.4, side_offset=1.0, max_selected=8)]
    valid = np.asarray(result.valid)
    np.testing.assert_array_equal(np.asarray(result.boxes)[valid], boxes[expected])
    np.testing.assert_array_equal(np.asarray(result.scores)[valid], scores[expected])
    assert not np.any(np.diff(valid.astype(int)) > 0)


def test_decode_boxes_inverts_encode_boxes() -> None:
    random = np.random.default_rng(0)
    a, b = (draw_overhanging_rois(random, 20, 1, 100)[:, 1:].astype(np.float32) for _ in range(2))
    end = np.asarray([0, 0, 1, 1])  # decoding does not take one pixel off again
    np.testing.assert_allclose(decode_boxes(a, encode_boxes(a, b)), b + end, atol=1e-3)
    np.testing.assert_allclose(
        encode_boxes(a, b, np), encode_boxes(jnp.asarray(a), jnp.asarray(b)), rtol=1e-4, atol=1e-5
    )


def test_anchors_equal_those_of_py_faster_rcnn() -> None:
    result = make_base_anchors(16, (0.5, 1, 2), (8, 16, 32))
    assert result[0].tolist() == [-84, -40, 99, 55]  # as its generate_anchors.py tells
    assert result[8].tolist() == [-168, -344, 183, 359]


@pytest.mark.parametrize(
    "text",
    ["'feat_stride': 8", "{'feat_stride': 8}", "feat_stride: 8", "feat_stride: 8\nflag: true", "{feat_stride: 8}"],
)
def test_param_str_is_parsed(text: str) -> None:
    result = parse_param_str(text, {"feat_stride": 16, "scales": (8, 16), "flag": False})
    assert result == {"feat_stride": 8, "scales": (8, 16), "flag": "flag" in text}


@pytest.mark.parametrize(
    "text",
    [
        "'scales': !!python/tuple [4, 8]\n",
        "'feat_stride': 16 \n'scales': [4,\n 8,]",
        "scales:\n- 4\n- 8",
        "'scales': (4, 8)",
    ],
)
def test_list_in_param_str_is_parsed(text: str) -> None:
    assert tuple(parse_param_str(text, {"feat_stride": 16, "scales": (8, 16)})["scales"]) == (4, 8)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("'scales': !!python/object/apply:print ['x']", "cannot read param_str"),
        ("feat_stride: &a 8\nscales: [*a]", "cannot read param_str"),
        ("__import__('os')", "cannot read param_str"),
        ("'feat_stride': open('x')", "feat_stride in param_str must have the type of its default 16, but is"),
        ("'feet_stride': 8", "no setting 'feet_stride'; did you mean 'feat_stride'"),
        ("'feat_stride': 'x'", "feat_stride in param_str must have the type of its default 16, but is 'x'"),
    ],
)
def test_invalid_param_str_is_rejected(text: str, words: str) -> None:
    with pytest.raises(CaffejaxError, match=words.replace("(", r"\(")):
        parse_param_str(text, {"feat_stride": 16})


@pytest.mark.parametrize(
    ("layer_type", "text", "shapes", "words"),
    [
        (
            "Proposal",
            "proposal_param { ratio: 1 scale: 2 }",
            [MAP_SHAPE, MAP_SHAPE, (1, 4)],
            "2 channels for 1 anchors",
        ),
        ("Proposal", "", [MAP_SHAPE, MAP_SHAPE, (1, 4)], "at least one ratio and one scale"),
    ],
)
def test_invalid_settings_and_bottoms_are_rejected(
    layer_type: str, text: str, shapes: list[tuple[int, ...]], words: str
) -> None:
    with pytest.raises(CaffejaxError, match=rf"layer 'layer' \({layer_type}\): .*{words}"):
        make_net(layer_type, text, shapes, 2 if layer_type == "BoxAnnotatorOHEM" else 1)


@pytest.mark.parametrize("layer_type", PROPOSAL_PARAMS)
def test_proposals_of_a_batch_equal_those_of_single_images(layer_type: str) -> None:
    random = np.random.default_rng(3)
    scores, deltas = random.normal(size=(2, 2, 4, 5)), random.normal(size=(2, 4, 4, 5), scale=0.5)
    sizes = np.array([[32, 40, 1], [20, 30, 1.5]], "f")
    rois, roi_scores = run_net(
        make_net(layer_type, PROPOSAL_PARAMS[layer_type], [(2, 2, 4, 5), (2, 4, 4, 5), (2, 3)], 2),
        scores,
        deltas,
        sizes,
    )
    single_image_net = make_net(layer_type, PROPOSAL_PARAMS[layer_type], [(1, 2, 4, 5), (1, 4, 4, 5), (1, 3)], 2)
    single_image_results = [
        run_net(single_image_net, *(x[i : i + 1] for x in (scores, deltas, sizes))) for i in range(2)
    ]
    rows = [np.where(np.arange(5) == 0, i, r)[r[:, 0] >= 0] for i, (r, _) in enumerate(single_image_results)]
    result = rois[rois[:, 0] >= 0]
    np.testing.assert_allclose(result, np.concatenate(rows), rtol=1e-5)
    assert len(result) < len(rois) == 32
    np.testing.assert_array_equal(rois[len(result) :], np.tile([-1, 0, 0, 0, 0], (32 - len(result), 1)))
    expected_scores = np.concatenate([b[r[:, 0] >= 0] for r, b in single_image_results])
    np.testing.assert_allclose(roi_scores[: len(result)], expected_scores, rtol=1e-5)


def test_one_scale_in_im_info_is_used_for_both_sides() -> None:
    random = np.random.default_rng(4)
    maps = random.normal(size=(1, 2, 4, 5)), random.normal(size=(1, 4, 4, 5))
    one_scale_rois, two_scale_rois = (
        run_net(
            make_net("Proposal", PROPOSAL_PARAMS["Proposal"], [(1, 2, 4, 5), (1, 4, 4, 5), (1, n)]),
            *maps,
            [[32, 40, 3, 3][:n]],
        )
        for n in (3, 4)
    )
    np.testing.assert_array_equal(one_scale_rois[0], two_scale_rois[0])


@pytest.mark.parametrize(("module", "rows"), [("rpn.proposal_layer", 3), ("SSH.layers.proposal_layer", 4)])
def test_ratios_and_base_size_determine_the_anchors(module: str, rows: int) -> None:
    """With zero deltas, the proposals of a 1 x 1 map are its anchors; SSH suppresses none in TEST."""
    text = "{'feat_stride': 8, 'scales': [1], 'ratios': [1, 4, 0.25, 1]%s}"
    text = text % (", 'base_size': 8" if "SSH" in module else "")
    param = f"python_param {{ module: '{module}' layer: 'ProposalLayer' param_str: \"{text}\" }}"
    proposal_net = make_net("Python", param, [(1, 8, 1, 1), (1, 16, 1, 1), (1, 3)])
    (rois,) = run_net(proposal_net, np.arange(8).reshape(1, 8, 1, 1), np.zeros((1, 16, 1, 1)), [[100, 100, 0]])
    anchors = make_base_anchors(8 if "SSH" in module else 16, [1, 0.25, 4, 1], [1])[:rows]
    expected = (anchors + np.array([0, 0, 1, 1])).clip(0)  # a decoded box ends a pixel later
    np.testing.assert_allclose(rois[rois[:, 0] >= 0][:, 1:], expected, atol=1e-5)
