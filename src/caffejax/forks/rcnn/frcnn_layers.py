"""FrcnnAnchorTarget, FrcnnProposal and FrcnnProposalTarget of caffe-faster-rcnn, py-faster-rcnn's layers in C++.

Their settings are in the JSON file that the net's FrcnnRoiData layer names.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ...base.errors import require
from ...core.data.data_layer import refuse_unsupported
from ...core.layers.context import Context, LayerDefinition, Shape
from ...core.layers.declaration import register
from ...core.layers.helpers import no_gradient
from ...core.layers.types import HostFunction, LayerType, PerLayer, Traced
from ...core.schema.caffe_pb2 import LayerParameter, WindowDataParameter
from .frcnn_config import FrcnnConfig
from .rcnn_targets import (
    check_proposal_target_settings,
    find_proposal_target_shapes,
    make_anchor_targets,
    sample_proposal_targets,
    trace_proposal_targets,
)
from .rpn_proposals import (
    ProposalLimits,
    Proposals,
    decode_anchors,
    propose,
    propose_for_images,
    require_maps,
    split_anchors,
)

_PARAM = "window_data_param"
_WITHOUT_EFFECT = ("mean_file", "crop_size", "mirror")  # on any layer with window_data_param
_FIELDS: dict[str, Any] = {
    "param": _PARAM,
    "fork_settings": ("config",),
    "in_place": False,
    "backward": no_gradient,
    "overrides_autodiff": True,
    "stops_gradient": True,
    "origin": "caffe-faster-rcnn",
}


def resolve_config(
    layer: LayerParameter, shapes: Any, layers: Sequence[LayerParameter], siblings: Any
) -> LayerParameter:
    """Return a layer with the config of the net's FrcnnRoiData layer, unless it has one itself."""
    configs = [other.window_data_param.config for other in layers if other.type == "FrcnnRoiData"]
    if layer.window_data_param.config or not configs:
        return layer
    resolved_layer = LayerParameter()
    resolved_layer.CopyFrom(layer)
    resolved_layer.window_data_param.config = configs[0]
    return resolved_layer


def _read_config(definition: LayerDefinition) -> FrcnnConfig:
    name = definition.layer.window_data_param.config
    require(
        name,
        "has no settings, because the net has no FrcnnRoiData layer; name their JSON file here, as "
        'window_data_param { config: "voc_config.json" }',
    )
    refuse_unsupported(definition.layer.window_data_param, _PARAM, ("config", *_WITHOUT_EFFECT))
    return FrcnnConfig(definition.path(name))


def _read_anchors(config: FrcnnConfig) -> tuple[np.ndarray, int]:
    """Return the anchors of the first cell, float32 (A, 4), and the distance between cells in pixels."""
    anchors, stride = config.numbers("anchors"), int(config.number("feat_stride"))
    require(len(anchors) % 4 == 0, f"the config must have four numbers for each of the anchors, not {len(anchors)}")
    require(stride > 0, f"feat_stride of the config must be above 0, not {stride}")
    return np.array(anchors, np.float32).reshape(-1, 4), stride


def make_anchor_target(p: WindowDataParameter, definition: LayerDefinition, *, ctx: Context) -> LayerType:
    """Label anchors, and compute their box targets, as py-faster-rcnn's AnchorTargetLayer does.

    Bottoms: scores (1, channels, H, W), whose values are not used; ground-truth boxes (M, 5, 1, 1) and im_info of
    FrcnnRoiData. Tops: labels (1, 1, A * H, W), then targets, inside weights and outside weights, (1, 4A, H, W) each.
    The config has the settings; its `anchors` are the boxes of the first cell.
    """
    config = _read_config(definition)
    base_anchors, stride = _read_anchors(config)
    settings = {
        "feat_stride": stride,
        "allowed_border": config.number("rpn_allowed_border"),
        "rpn_batchsize": int(config.number("rpn_batchsize")),
        "rpn_clobber_positives": config.number("rpn_clobber_positives") != 0,
        "rpn_bbox_inside_weights": config.numbers("rpn_bbox_inside_weights", 4),
        **{
            name: config.number(name)
            for name in ("rpn_fg_fraction", "rpn_positive_overlap", "rpn_negative_overlap", "rpn_positive_weight")
        },
    }

    def forward(scores: jax.Array, truth: jax.Array, im_info: jax.Array, *, key: jax.Array) -> tuple[jax.Array, ...]:
        return make_anchor_targets(settings, base_anchors, scores, truth, im_info, key)

    return replace(ctx.type, implementation=Traced(forward))


register(
    "FrcnnAnchorTarget",
    PerLayer(make_anchor_target, resolve=resolve_config),
    bottoms=3,
    tops=4,
    counts_rows=True,
    row_bottoms=(1,),
    takes_one_image=True,
    restrictions="A ground-truth box that overlaps no anchor does not make any anchor positive.",
    **_FIELDS,
)


def make_proposal(p: WindowDataParameter, definition: LayerDefinition, *, ctx: Context) -> LayerType:
    """Select the best boxes of a region proposal network, as rows image, x1, y1, x2, y2, (N, 5).

    Bottoms: scores (N, 2A, H, W), deltas (N, 4A, H, W), and im_info of FrcnnRoiData. An optional second top contains
    the scores of the boxes. Boxes smaller than rpn_min_size times the scale are ignored, and the best others go through
    non-maximum suppression; the last of equal scores is the best. Padding rows come last and are -1, 0, 0, 0, 0. The
    config has the settings; in TEST their names begin with `test_`.
    """
    config, prefix = _read_config(definition), "" if ctx.training else "test_"
    config.refuse(test_soft_nms=0, test_rpn_score_thresh=0)
    base_anchors, stride = _read_anchors(config)
    min_size = int(config.number(f"{prefix}rpn_min_size"))
    num_before, num_after = (int(config.number(f"{prefix}rpn_{name}_nms_top_n")) for name in ("pre", "post"))
    limits = ProposalLimits(num_before, num_after, config.number(f"{prefix}rpn_nms_thresh"))

    def find_proposals(scores: jax.Array, deltas: jax.Array, info_row: jax.Array) -> Proposals:
        boxes = decode_anchors(base_anchors, stride, deltas, info_row)
        is_large = jnp.all(boxes[:, 2:] - boxes[:, :2] + 1 >= min_size * info_row[2], axis=1)
        score = split_anchors(scores[None, len(base_anchors) :], 1).ravel()
        return propose(boxes[::-1], score[::-1], is_large[::-1], limits)

    def forward(scores: jax.Array, deltas: jax.Array, im_info: jax.Array, *, num_tops: int) -> Any:
        require_maps(scores, deltas, im_info, len(base_anchors))
        rois, roi_scores = propose_for_images(find_proposals, scores, deltas, im_info)
        return rois if num_tops == 1 else (rois, roi_scores[:, None])

    return replace(ctx.type, implementation=Traced(forward))


register(
    "FrcnnProposal",
    PerLayer(make_proposal, resolve=resolve_config),
    bottoms=3,
    tops=(1, 2),
    pads_rows=True,
    restrictions="`test_soft_nms` and `test_rpn_score_thresh` of later versions are refused.",
    **_FIELDS,
)


def make_proposal_target(p: WindowDataParameter, definition: LayerDefinition, *, ctx: Context) -> LayerType:
    """Sample regions of interest, and return them with their classes, box targets and weights.

    The bottoms are the rows (N, 5) of FrcnnProposal and the ground-truth boxes (M, 5, 1, 1) of FrcnnRoiData. The tops
    are, as of py-faster-rcnn's ProposalTargetLayer, n sampled rows (n, 5), their classes (n,), and their box targets,
    inside weights and outside weights, (n, 4 * n_classes) each. The config has the settings.
    """
    config = _read_config(definition)
    batch_size = int(config.number("batch_size"))
    settings = check_proposal_target_settings(
        {
            "num_classes": int(config.number("n_classes")),
            "agnostic": False,
            "batch_size": batch_size,
            "fg_fraction": int(config.number("fg_fraction") * batch_size) / max(batch_size, 1),
            "bbox_normalize_targets_precomputed": config.number("bbox_normalize_targets") != 0,
            **{name: config.number(name) for name in ("fg_thresh", "bg_thresh_hi", "bg_thresh_lo")},
            **{
                name: config.numbers(name, 4)
                for name in ("bbox_inside_weights", "bbox_normalize_means", "bbox_normalize_stds")
            },
        }
    )

    def forward(rois: np.ndarray, truth: np.ndarray, *, ctx: Context) -> tuple[np.ndarray, ...]:
        return sample_proposal_targets(settings, rois, truth, ctx)

    def traced(rois: Any, truth: Any, *, ctx: Context) -> tuple[tuple[Any, ...], Any]:
        return trace_proposal_targets(settings, rois, truth, ctx)

    def top_shapes(rois: Any, truth: Any) -> list[Shape]:
        return find_proposal_target_shapes(settings, rois, truth)

    return replace(ctx.type, implementation=HostFunction(forward, top_shapes, ragged_axis=0, traced=traced))


register(
    "FrcnnProposalTarget",
    PerLayer(make_proposal_target, on_host=True, resolve=resolve_config),
    bottoms=2,
    tops=5,
    takes_one_image=True,
    restrictions="A region that overlaps several ground-truth boxes equally belongs to the first; in the fork to the "
    "last. Later versions repeat background until there are `batch_size` rows.",
    unsupported={"shard": "the sampled rows are of all devices"},
    **_FIELDS,
)
