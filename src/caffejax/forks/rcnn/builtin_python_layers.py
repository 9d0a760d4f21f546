"""Built-in versions of Python layers of well-known projects, under the names that their nets use.

A built-in version is used if the module that the net names cannot be imported.
"""

from __future__ import annotations

from ...core.layers.types import LayerType
from ..detectnet.clustering import CLUSTER_DETECTIONS, CLUSTER_GROUNDTRUTH, MEAN_AP, SCORE_DETECTIONS
from ..general.dropout import SPATIAL_DROPOUT_LAYER
from .mnc_layers import MASK_LAYER, STAGE_BRIDGE_LAYER
from .rcnn_targets import ANCHOR_TARGET_LAYER, PROPOSAL_TARGET_LAYER
from .rpn_proposals import MNC_PROPOSAL_LAYER, PROPOSAL_LAYER, SSH_PROPOSAL_LAYER

# {(end of the module's name, name of the class): type}
BUILTIN_TYPES: dict[tuple[str, str], LayerType] = {
    ("rpn.proposal_layer", "ProposalLayer"): PROPOSAL_LAYER,
    ("SSH.layers.proposal_layer", "ProposalLayer"): SSH_PROPOSAL_LAYER,
    ("rpn.anchor_target_layer", "AnchorTargetLayer"): ANCHOR_TARGET_LAYER,
    ("rpn.proposal_target_layer", "ProposalTargetLayer"): PROPOSAL_TARGET_LAYER,
    ("pylayer.proposal_layer", "ProposalLayer"): MNC_PROPOSAL_LAYER,
    ("pylayer.anchor_target_layer", "AnchorTargetLayer"): ANCHOR_TARGET_LAYER,
    ("pylayer.proposal_target_layer", "ProposalTargetLayer"): PROPOSAL_TARGET_LAYER,
    ("pylayer.mask_layer", "MaskLayer"): MASK_LAYER,
    ("pylayer.stage_bridge_layer", "StageBridgeLayer"): STAGE_BRIDGE_LAYER,
    ("spatial_dropout", "SpatialDropoutLayer"): SPATIAL_DROPOUT_LAYER,
    ("detectnet.clustering", "ClusterDetections"): CLUSTER_DETECTIONS,
    ("detectnet.clustering", "ClusterGroundtruth"): CLUSTER_GROUNDTRUTH,
    ("detectnet.mean_ap", "ScoreDetections"): SCORE_DETECTIONS,
    ("detectnet.mean_ap", "mAP"): MEAN_AP,
}


def find_builtin_type(module: str, name: str) -> LayerType | None:
    """Return the built-in type that replaces class `name` of `module`, or None if the class is not built in."""
    for (ending, class_name), layer_type in BUILTIN_TYPES.items():
        if name == class_name and f".{module}".endswith(f".{ending}"):
            return layer_type
    return None
