"""Built-in versions of Python layers of well-known projects, under the names that their nets use.

A built-in version is used if the module that the net names cannot be imported.
"""

from __future__ import annotations

from ...core.layers.types import LayerType
from ..detectnet.clustering import cluster_detections, cluster_groundtruth, mean_ap, score_detections
from ..general.dropout import spatial_dropout_layer
from .mnc_layers import mask_layer, stage_bridge_layer
from .rcnn_targets import anchor_target_layer, proposal_target_layer
from .rpn_proposals import mnc_proposal_layer, proposal_layer, ssh_proposal_layer

# {(end of the module's name, name of the class): type}
BUILTIN_TYPES: dict[tuple[str, str], LayerType] = {
    ("rpn.proposal_layer", "ProposalLayer"): proposal_layer.type,
    ("SSH.layers.proposal_layer", "ProposalLayer"): ssh_proposal_layer.type,
    ("rpn.anchor_target_layer", "AnchorTargetLayer"): anchor_target_layer.type,
    ("rpn.proposal_target_layer", "ProposalTargetLayer"): proposal_target_layer.type,
    ("pylayer.proposal_layer", "ProposalLayer"): mnc_proposal_layer.type,
    ("pylayer.anchor_target_layer", "AnchorTargetLayer"): anchor_target_layer.type,
    ("pylayer.proposal_target_layer", "ProposalTargetLayer"): proposal_target_layer.type,
    ("pylayer.mask_layer", "MaskLayer"): mask_layer.type,
    ("pylayer.stage_bridge_layer", "StageBridgeLayer"): stage_bridge_layer.type,
    ("spatial_dropout", "SpatialDropoutLayer"): spatial_dropout_layer.type,
    ("detectnet.clustering", "ClusterDetections"): cluster_detections.type,
    ("detectnet.clustering", "ClusterGroundtruth"): cluster_groundtruth.type,
    ("detectnet.mean_ap", "ScoreDetections"): score_detections.type,
    ("detectnet.mean_ap", "mAP"): mean_ap.type,
}


def find_builtin_type(module: str, name: str) -> LayerType | None:
    """Return the built-in type that replaces class `name` of `module`, or None if the class is not built in."""
    for (ending, class_name), layer_type in BUILTIN_TYPES.items():
        if name == class_name and f".{module}".endswith(f".{ending}"):
            return layer_type
    return None
