"""The layers of SSD detectors in torch, for `torch_net.TorchNet`, as torch's users write them.

Only they need torchvision, so it is imported where it is called.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import nn

if TYPE_CHECKING:
    from caffejax.core.graph import Layer


def permute(layer: Layer, x: torch.Tensor) -> torch.Tensor:
    return x.permute(*layer.context.param.order)


def normalize(layer: Layer, x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """Divide by the norm along channels and multiply by a scale for each channel."""
    return F.normalize(x, dim=1, eps=layer.context.param.eps) * scale.view(1, -1, 1, 1)


def multibox_loss(
    layer: Layer, loc: torch.Tensor, conf: torch.Tensor, priors: torch.Tensor, truth: torch.Tensor
) -> torch.Tensor:
    """Match priors to ground truth (1, 1, G, 8), mine negatives, and sum smooth L1 and cross-entropy losses."""
    from torchvision.ops import box_iou

    p = layer.context.param
    batch, boxes, variance = len(loc), priors[0, 0].view(-1, 4), priors[0, 1].view(-1, 4)
    loc, conf = loc.view(batch, -1, 4), conf.view(batch, -1, p.num_classes)
    classes = torch.zeros(conf.shape[:2], dtype=torch.long)
    targets, overlaps = torch.zeros_like(loc), torch.zeros(conf.shape[:2])
    for i in range(batch):
        rows = truth[0, 0][truth[0, 0, :, 0] == i]
        if not len(rows):
            continue
        iou = box_iou(rows[:, 3:7], boxes)
        best, box_of_prior = iou.max(0)
        overlaps[i] = best
        best = best.clone()
        unmatched_iou = iou.clone()
        for _ in range(len(rows)):  # each box of the truth gets the prior that is best for it
            position = int(unmatched_iou.argmax())
            box_index, prior = divmod(position, len(boxes))
            box_of_prior[prior], best[prior] = box_index, 2.0
            unmatched_iou[box_index], unmatched_iou[:, prior] = -1, -1
        is_matched = best >= p.overlap_threshold
        classes[i] = torch.where(is_matched, rows[box_of_prior, 1].long(), 0)
        targets[i] = encode_boxes(rows[box_of_prior, 3:7], boxes, variance)
    is_positive = classes > 0
    num_positive = is_positive.sum().clamp(min=1)
    loc_loss = F.smooth_l1_loss(loc[is_positive], targets[is_positive], reduction="sum")
    cross_entropy = F.cross_entropy(conf.flatten(0, 1), classes.flatten(), reduction="none").view(batch, -1)
    minable_loss = cross_entropy.detach().masked_fill(is_positive | (overlaps >= p.neg_overlap), -1)
    rank = minable_loss.sort(1, descending=True)[1].sort(1)[1]
    is_negative = (rank < (is_positive.sum(1, keepdim=True) * p.neg_pos_ratio)) & (minable_loss >= 0)
    return (loc_loss * p.loc_weight + cross_entropy[is_positive | is_negative].sum()) / num_positive


def encode_boxes(box: torch.Tensor, prior: torch.Tensor, variance: torch.Tensor) -> torch.Tensor:
    """Return boxes encoded relative to priors: offsets of the centers, and logarithms of the sides."""
    size, prior_size = box[:, 2:] - box[:, :2], prior[:, 2:] - prior[:, :2]
    shift = (box[:, :2] + box[:, 2:] - prior[:, :2] - prior[:, 2:]) / 2 / prior_size
    return torch.cat([shift, torch.log(size.clamp(min=1e-8) / prior_size)], 1) / variance


def detection_output(layer: Layer, loc: torch.Tensor, conf: torch.Tensor, priors: torch.Tensor) -> torch.Tensor:
    """Decode boxes, suppress by class, and keep the best of each image; return rows [image, label, score, box]."""
    from torchvision.ops import batched_nms

    p = layer.context.param
    boxes, variance = priors[0, 0].view(-1, 4), priors[0, 1].view(-1, 4)
    size = boxes[:, 2:] - boxes[:, :2]
    deltas = loc.view(len(loc), -1, 4) * variance
    center, sides = (boxes[:, :2] + boxes[:, 2:]) / 2 + deltas[..., :2] * size, torch.exp(deltas[..., 2:]) * size
    decoded = torch.cat([center - sides / 2, center + sides / 2], 2)
    scores = conf.view(len(loc), -1, p.num_classes)[:, :, 1:].transpose(1, 2)  # without the background
    k = min(p.nms_param.top_k, scores.shape[2])
    best, prior_indices = scores.topk(k, dim=2)
    rows = []
    for i in range(len(loc)):
        label, prior_rank = torch.nonzero(best[i] > p.confidence_threshold, as_tuple=True)
        score, box = best[i][label, prior_rank], decoded[i][prior_indices[i][label, prior_rank]]
        selected = batched_nms(box, score, label, p.nms_param.nms_threshold)[: p.keep_top_k]
        prefix_columns = torch.stack(
            [torch.full((len(selected),), float(i)), label[selected] + 1.0, score[selected]], 1
        )
        rows.append(torch.cat([prefix_columns, box[selected]], 1))
    return torch.cat(rows)[None, None]


SSD_FUNCTIONS = {
    "Permute": permute,
    "Normalize": normalize,
    "MultiBoxLoss": multibox_loss,
    "DetectionOutput": detection_output,
}


class SsdLayer(nn.Module):
    """A layer of SSD."""

    def __init__(self, layer: Layer) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, *arrays: torch.Tensor) -> torch.Tensor:
        return SSD_FUNCTIONS[self.layer.type.name](self.layer, *arrays)
