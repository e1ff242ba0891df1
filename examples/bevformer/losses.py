"""Classification and box losses of one decoder layer."""

import torch
import torch.nn.functional as F
from mmdet.utils import reduce_mean
from torch import Tensor


def sigmoid_focal_loss(
    logits: Tensor, targets: Tensor, alpha: float = 0.25, gamma: float = 2.0
) -> Tensor:
    """Focal loss (Lin et al. 2017, eq. 5) of every logit, same shape; targets are 0 or 1."""
    p = logits.sigmoid()
    missed = torch.where(targets > 0, 1 - p, p)
    balance = torch.where(targets > 0, alpha, 1 - alpha)
    cross_entropy = F.binary_cross_entropy_with_logits(logits, targets, reduction="none")
    return balance * missed**gamma * cross_entropy


def averaging_factor(num_matched: Tensor) -> Tensor:
    """The number of matched boxes per rank, averaged over the ranks, at least 1."""
    return reduce_mean(num_matched.float()).clamp(min=1)


def detection_losses(
    logits: Tensor,
    boxes: Tensor,
    matched: Tensor,
    gt_labels: Tensor,
    gt_boxes: Tensor,
    factor: Tensor,
    code_weights: Tensor,
    class_weight: float = 2.0,
    box_weight: float = 0.25,
) -> tuple[Tensor, Tensor]:
    """Losses in float32; both belong to the graph even without any ground truth.

    Args:
        logits: (B, Q, classes).
        boxes: (B, Q, 10) network boxes.
        matched: (B, Q) int64, index of the ground truth of the own sample, -1 for background.
        gt_labels: (B, n) int64, gt_boxes (B, n, 10) network boxes, filled up to the longest sample,
            n >= 1.
        factor: () what the sums are divided by.
        code_weights: (10,).

    Returns:
        class loss (), box loss ().
    """
    logits, boxes = logits.float(), boxes.float()
    positive = matched >= 0
    index = matched.clamp(min=0)
    labels = gt_labels.gather(1, index)
    targets = F.one_hot(labels, logits.shape[-1]) * positive.unsqueeze(-1)
    class_loss = sigmoid_focal_loss(logits, targets.to(logits.dtype)).sum()

    box_targets = gt_boxes.gather(1, index.unsqueeze(-1).expand(-1, -1, gt_boxes.shape[-1]))
    used = positive & box_targets.isfinite().all(-1)
    difference = (boxes - torch.where(used.unsqueeze(-1), box_targets, 0)).abs() * code_weights
    box_loss = torch.where(used.unsqueeze(-1), difference, 0).sum()
    return (
        torch.nan_to_num(class_weight * class_loss / factor),
        torch.nan_to_num(box_weight * box_loss / factor),
    )
