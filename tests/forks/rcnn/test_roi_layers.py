"""Region layers: comparison with plain loops, invariants, and errors about invalid inputs."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from caffejax import Net
from caffejax.base.errors import CaffejaxError
from caffejax.core.layers.param_str import parse_param_str
from caffejax.forks.rcnn.rpn_proposals import ProposalLimits, decode_boxes, encode_boxes, make_base_anchors, propose
from forks.detection.sequential_nms import suppress_sequentially


def make_net(layer_type: str, text: str, shapes: list[tuple[int, ...]], tops: int = 1, phase: Any = "TEST") -> Net:
    inputs = [
        f'layer {{ name: "b{i}" type: "Input" top: "b{i}" input_param {{ shape {{ '
        f"{' '.join(f'dim: {n}' for n in shape)} }} }} }}"
        for i, shape in enumerate(shapes)
    ]
    blob_names = [f'bottom: "b{i}"' for i in range(len(shapes))] + [f'top: "t{i}"' for i in range(tops)]
    return Net(
        "\n".join([*inputs, f'layer {{ name: "layer" type: "{layer_type}" {" ".join(blob_names)} {text} }}']), phase
    )


@functools.lru_cache(maxsize=1)
def compile_net(net: Net) -> Any:
    return net.jit(net.apply)


def run_net(net: Net, *bottoms: Any, key: int = 0) -> list[np.ndarray]:
    inputs = {f"b{i}": np.asarray(b, np.float32) for i, b in enumerate(bottoms)}
    tops, _ = compile_net(net)({}, {}, inputs, key=jax.random.key(key))
    return [np.asarray(tops[name]) for name in sorted(tops)]


def draw_rois(random: np.random.Generator, n: int, num_images: int, size: float) -> np.ndarray:
    a, b = random.uniform(-0.2 * size, 1.2 * size, (2, n, 2))
    return np.concatenate([random.integers(0, num_images, (n, 1)), np.minimum(a, b), np.maximum(a, b)], 1)


def pool_by_loops(x: np.ndarray, rois: np.ndarray, n: int, scale: float) -> np.ndarray:
    height, width = x.shape[2:]
    top = np.zeros((len(rois), x.shape[1], n, n), np.float32)
    for r, (image, *box) in enumerate(rois.astype(np.float32)):
        x1, y1, x2, y2 = (int(np.sign(v) * np.floor(abs(v) + 0.5)) for v in np.float32(box) * np.float32(scale))
        h, w = max(y2 - y1 + 1, 1), max(x2 - x1 + 1, 1)
        for i in range(n):
            for j in range(n):
                rows = slice(*np.clip([y1 + i * h // n, y1 - (-(i + 1) * h // n)], 0, height))
                columns = slice(*np.clip([x1 + j * w // n, x1 - (-(j + 1) * w // n)], 0, width))
                cells = x[int(image), :, rows, columns]
                if cells.size:
                    top[r, :, i, j] = cells.max(axis=(1, 2))
    return top


@pytest.mark.parametrize(("channels", "height", "width", "n"), [(3, 9, 14, 4), (2, 1, 33, 7), (700, 20, 31, 3)])
def test_roi_pooling_equals_loops(channels: int, height: int, width: int, n: int) -> None:
    random = np.random.default_rng(0)
    x = random.normal(size=(2, channels, height, width)).astype(np.float32)
    rois = draw_rois(random, 12, 2, 16 * max(height, width))
    pooling_net = make_net(
        "ROIPooling",
        f"roi_pooling_param {{ pooled_h: {n} pooled_w: {n} spatial_scale: 0.0625 }}",
        [x.shape, rois.shape],
    )
    np.testing.assert_array_equal(run_net(pooling_net, x, rois)[0], pool_by_loops(x, rois, n, 0.0625))


def test_roi_pooling_gives_the_first_of_equal_maxima_the_gradient() -> None:
    pooling_net = make_net("ROIPooling", "roi_pooling_param { pooled_h: 1 pooled_w: 1 }", [(1, 1, 5, 6), (2, 5)])
    rois = np.asarray([[0, 1, 1, 4, 4], [0, 2, 2, 3, 3]], np.float32)
    grad = jax.grad(lambda x: pooling_net.apply({}, {}, {"b0": x, "b1": rois})[0]["t0"].sum())(jnp.ones((1, 1, 5, 6)))
    assert np.argwhere(grad[0, 0]).tolist() == [[1, 1], [2, 2]]


def test_padding_rois_are_finite_and_missing_images_give_nan() -> None:
    x = np.ones((2, 2, 6, 6), np.float32)
    rois = np.asarray([[1, 0, 0, 3, 3], [-1, 0, 0, 0, 0], [2, 0, 0, 3, 3]], np.float32)
    for layer_type, text in {
        "ROIPooling": "roi_pooling_param { pooled_h: 2 pooled_w: 2 }",
        "ROIAlign": "roi_pooling_param { pooled_h: 2 pooled_w: 2 }",
        "PSROIPooling": "psroi_pooling_param { output_dim: 2 group_size: 1 spatial_scale: 1 }",
    }.items():
        (top,) = run_net(make_net(layer_type, text, [x.shape, rois.shape]), x, rois)
        assert np.isfinite(top[:2]).all(), layer_type
        assert np.isnan(top[2]).all(), layer_type


def test_samples_on_the_border_of_the_map_count_as_in_c() -> None:
    """If boxes end at the border, float32 rounding decides which samples are inside; it must equal the C code's."""
    random = np.random.default_rng(0)
    size, scale = np.float32([41, 25]), np.float32(1 / 32)
    low = np.float32(random.uniform(0, size * 32, (4000, 2)))
    rois = np.concatenate([np.zeros((4000, 1)), low, np.broadcast_to(size * 32, low.shape)], 1)
    text = "roi_pooling_param { pooled_h: 7 pooled_w: 7 spatial_scale: 0.03125 }"
    (top,) = run_net(make_net("ROIAlign", text, [(1, 1, 25, 41), rois.shape]), np.ones((1, 1, 25, 41)), rois)

    step = (size - low * scale) / np.float32(7)
    last = low * scale + np.float32(7) * step - np.float32(0.5)
    is_outside = last > size - 0.5
    assert 0 < is_outside.sum() < is_outside.size
    np.testing.assert_array_equal(top[:, 0, 0, -1] == 0, is_outside[:, 0])
    np.testing.assert_array_equal(top[:, 0, -1, 0] == 0, is_outside[:, 1])


@given(st.integers(0, 2**31), st.floats(0, 1), st.floats(10, 200))
@settings(max_examples=50)
def test_best_boxes_come_first_and_padding_last(seed: int, valid_fraction: float, size: float) -> None:
    random = np.random.default_rng(seed)
    boxes, scores = np.float32(draw_rois(random, 40, 1, size)[:, 1:]), np.float32(random.permutation(40) / 40)
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
    a, b = (draw_rois(random, 20, 1, 100)[:, 1:].astype(np.float32) for _ in range(2))
    end = np.asarray([0, 0, 1, 1])  # decoding does not take one pixel off again
    np.testing.assert_allclose(decode_boxes(a, encode_boxes(a, b)), b + end, atol=1e-3)
    np.testing.assert_allclose(
        encode_boxes(a, b, np), encode_boxes(jnp.asarray(a), jnp.asarray(b)), rtol=1e-4, atol=1e-5
    )


def test_anchors_equal_those_of_py_faster_rcnn() -> None:
    result = make_base_anchors(16, (0.5, 1, 2), (8, 16, 32))
    assert result[0].tolist() == [-84, -40, 99, 55]  # as its generate_anchors.py tells
    assert result[8].tolist() == [-168, -344, 183, 359]


PROPOSAL_TARGET_PARAM = (
    "python_param { module: 'rpn.proposal_target_layer' layer: 'ProposalTargetLayer' param_str: \"%s\" }"
)


def test_proposal_targets_belong_to_the_matched_ground_truth() -> None:
    random = np.random.default_rng(1)
    truth = np.asarray([[10, 10, 40, 50, 2], [60, 20, 90, 45, 1], [0, 0, 0, 0, 0]], np.float32)
    near_boxes = truth[random.integers(0, 2, 40), :4] + random.uniform(-8, 8, (40, 4))
    rois = np.concatenate([np.zeros((60, 1)), np.concatenate([near_boxes, draw_rois(random, 20, 1, 90)[:, 1:]])], 1)
    rois = np.concatenate([rois, np.tile([-1, 0, 0, 0, 0], (5, 1))]).astype(np.float32)
    target_net = make_net(
        "Python", PROPOSAL_TARGET_PARAM % "{'num_classes': 3, 'batch_size': 16}", [rois.shape, truth.shape], 5, "TRAIN"
    )
    sampled_rois, labels, targets, inside_weights, outside_weights = run_net(target_net, rois, truth)
    positive = labels > 0
    assert 0 < positive.sum() <= 4
    assert len(sampled_rois) <= 16
    assert (sampled_rois[:, 0] == 0).all()
    np.testing.assert_array_equal(inside_weights, outside_weights)
    assert inside_weights.sum() == 4 * positive.sum()
    for row in np.flatnonzero(positive):
        k = int(labels[row])
        truth_box = truth[truth[:, 4] == k][0, :4]
        np.testing.assert_allclose(
            targets[row, 4 * k : 4 * k + 4], encode_boxes(sampled_rois[row, 1:], truth_box, np), rtol=1e-5
        )
        assert (inside_weights[row, 4 * k : 4 * k + 4] == 1).all()
    repeated_tops, other_key_tops = run_net(target_net, rois, truth), run_net(target_net, rois, truth, key=7)
    np.testing.assert_array_equal(sampled_rois, repeated_tops[0])
    assert not np.array_equal(sampled_rois, other_key_tops[0])


ANCHOR_TARGET_PARAM = "python_param { module: 'rpn.anchor_target_layer' layer: 'AnchorTargetLayer' param_str: \"%s\" }"


def test_anchor_targets_are_sampled_by_the_key() -> None:
    text = ANCHOR_TARGET_PARAM % "'feat_stride': 8, 'scales': [1, 2], 'rpn_batchsize': 10"
    shapes = [(1, 12, 12, 12), (2, 5), (1, 3)]
    target_net = make_net("Python", text, shapes, 4, "TRAIN")
    truth = np.asarray([[20, 20, 45, 45, 1], [0, 0, 95, 95, 0]], np.float32)  # the second does not count
    bottoms = np.zeros(shapes[0]), truth, [[96, 96, 1]]
    labels, _, inside_weights, outside_weights = run_net(target_net, *bottoms)
    assert 0 < (labels == 1).sum() <= 5
    assert (labels >= 0).sum() == 10
    np.testing.assert_allclose(outside_weights[outside_weights > 0], 0.1)
    assert inside_weights.sum() == 4 * (labels == 1).sum()
    assert not np.array_equal(labels, run_net(target_net, *bottoms, key=1)[0])


def test_spatial_dropout_drops_channels() -> None:
    layer_fields = "module: 'spatial_dropout' layer: 'SpatialDropoutLayer'"
    text = f"python_param {{ {layer_fields} param_str: \"{{'phase': '%s', 'p': '0.2'}}\" }}"
    x = np.ones((8, 40, 3, 3), np.float32)
    (top,) = run_net(make_net("Python", text % "TRAIN", [x.shape]), x)
    assert ((top == top[:, :, :1, :1]).all(axis=(2, 3))).all()
    assert set(np.unique(top)) == {np.float32(0), np.float32(1.25)}
    assert abs((top > 0).mean() - 0.8) < 0.1
    np.testing.assert_array_equal(run_net(make_net("Python", text % "TEST", [x.shape]), x)[0], np.float32(1.25) * x)


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


MAPS, ROIS = (2, 18, 6, 7), (4, 5)


@pytest.mark.parametrize(
    ("layer_type", "text", "shapes", "words"),
    [
        ("ROIPooling", "roi_pooling_param { pooled_h: 2 }", [MAPS, ROIS], "pooled_h and pooled_w must be > 0"),
        ("ROIPooling", "roi_pooling_param { pooled_h: 2 pooled_w: 2 }", [MAPS, (4, 4)], "five values in each row"),
        ("ROIAlign", "roi_pooling_param { pooled_h: 2 pooled_w: 2 }", [MAPS[:3], ROIS], "must be N x C x H x W"),
        (
            "PSROIPooling",
            "psroi_pooling_param { output_dim: 3 group_size: 3 spatial_scale: 1 }",
            [MAPS, ROIS],
            "27 channels, but bottom 0 has 18",
        ),
        ("MaskResize", "mask_resize_param { output_height: 3 }", [MAPS], "must be > 0"),
        ("Proposal", "proposal_param { ratio: 1 scale: 2 }", [MAPS, MAPS, (1, 4)], "2 channels for 1 anchors"),
        ("Proposal", "", [MAPS, MAPS, (1, 4)], "at least one ratio and one scale"),
        (
            "BoxAnnotatorOHEM",
            "box_annotator_ohem_param { roi_per_img: 1 }",
            [ROIS, (3,), (4,), ROIS],
            "bottom 1 must have one",
        ),
        ("SmoothL1LossOHEM", "", [(4, 3), (4, 2)], "must have the shape of bottom 0"),
    ],
)
def test_invalid_settings_and_bottoms_are_rejected(
    layer_type: str, text: str, shapes: list[tuple[int, ...]], words: str
) -> None:
    with pytest.raises(CaffejaxError, match=rf"layer 'layer' \({layer_type}\): .*{words}"):
        make_net(layer_type, text, shapes, 2 if layer_type == "BoxAnnotatorOHEM" else 1)


def test_computed_masks_must_have_the_shape_of_the_features() -> None:
    """Masks from Input layers are reshaped instead."""
    shape = " ".join(f"dim: {n}" for n in MAPS)
    text = f"""layer {{ name: "in" type: "Input" top: "x" input_param {{ shape {{ {shape} }} }} }}
      layer {{ name: "made" type: "Power" bottom: "x" top: "mask" }}
      layer {{ name: "layer" type: "MaskPooling" bottom: "x" bottom: "mask" top: "y" }}"""
    with pytest.raises(CaffejaxError, match=r"must have shape \(2, 1, 6, 7\)"):
        Net(text)


STAGE_BRIDGE_PARAM = 'python_param { module: "pylayer.stage_bridge_layer" layer: "StageBridgeLayer" }'
NUM_CLASSES = 3


def test_stage_bridge_moves_each_region_by_the_deltas_of_its_best_class() -> None:
    random, height, width = np.random.default_rng(0), 50, 80
    corners = random.uniform(0, 40, (7, 2))
    rois = np.concatenate([np.zeros((7, 1)), corners, corners + random.uniform(0, 30, (7, 2))], axis=1)
    rois[-2:] = [-1, 0, 0, 0, 0]  # padding
    deltas, scores = random.normal(scale=0.4, size=(7, 4 * NUM_CLASSES)), random.uniform(size=(7, NUM_CLASSES))
    inputs = {"b0": rois, "b1": deltas, "b2": scores, "b3": np.array([[height, width, 1.5]])}
    bridge_net = make_net("Python", STAGE_BRIDGE_PARAM, [a.shape for a in inputs.values()])
    top = bridge_net.apply({}, {}, {name: np.float32(a) for name, a in inputs.items()})[0]["t0"]
    assert len(bridge_net.strip_padding({"t0": top})["t0"]) == 5
    for row, (_, x1, y1, x2, y2), score, delta in zip(top[:5], rois, scores, deltas, strict=False):
        k = max(range(NUM_CLASSES), key=lambda k: score[k])
        dx, dy, dw, dh = delta[4 * k : 4 * k + 4]
        w, h = x2 - x1 + 1, y2 - y1 + 1
        x, y, w, h = x1 + w / 2 + dx * w, y1 + h / 2 + dy * h, w * np.exp(dw), h * np.exp(dh)
        clip_functions = (lambda v: min(max(v, 0), width - 1)), (lambda v: min(max(v, 0), height - 1))
        expected = [
            0,
            clip_functions[0](x - w / 2),
            clip_functions[1](y - h / 2),
            clip_functions[0](x + w / 2),
            clip_functions[1](y + h / 2),
        ]
        np.testing.assert_allclose(row, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("shapes", "words"),
    [
        ([(7, 4), (7, 12), (7, 3), (1, 3)], r"five values in each row, not shape \(7, 4\)"),
        ([(7, 5), (7, 12), (6, 3), (1, 3)], r"a row for each of 7 ROIs, not shape \(6, 3\)"),
        ([(7, 5), (7, 8), (7, 3), (1, 3)], r"4 deltas for each of 3 classes, \(7, 12\), not shape \(7, 8\)"),
        ([(7, 5), (7, 12), (7, 3), (2, 3)], "for one image"),
    ],
)
def test_stage_bridge_rejects_invalid_bottoms(shapes: list[tuple[int, ...]], words: str) -> None:
    with pytest.raises(CaffejaxError, match=words):
        make_net("Python", STAGE_BRIDGE_PARAM, shapes)


PYTHON_PROPOSAL_PARAM = "python_param {{ module: 'rpn.proposal_layer' layer: 'ProposalLayer' param_str: \"{}\" }}"
PROPOSAL_PARAMS = {
    "Proposal": "proposal_param { ratio: 1 scale: 2 feat_stride: 8 pre_nms_topn: 20 post_nms_topn: 16 min_size: 2 }",
    "Python": PYTHON_PROPOSAL_PARAM.format(
        "{'feat_stride': 8, 'scales': [2], 'ratios': [1], 'rpn_post_nms_top_n': 16}"
    ),
}


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
