"""One-to-one matching of predictions and ground truth."""

import numpy as np
import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from autodrive.engine.transfer import upload

# Numbers of a network box that take part in matching: all but the velocity.
MATCHED_NUMBERS = 8


def focal_cost(
    logits: Tensor, alpha: float = 0.25, gamma: float = 2.0, eps: float = 1e-12
) -> Tensor:
    """Cost of each class: focal loss as positive minus focal loss as negative; same shape."""
    p = logits.sigmoid()
    positive = -(p + eps).log() * alpha * (1 - p) ** gamma
    negative = -(1 - p + eps).log() * (1 - alpha) * p**gamma
    return positive - negative


@torch.no_grad()
def match(
    logits: Tensor,
    boxes: Tensor,
    gt_labels: list[Tensor],
    gt_boxes: list[Tensor],
    tokens: list[str],
    class_weight: float = 2.0,
    box_weight: float = 0.25,
) -> Tensor:
    """Hungarian matching per decoder layer and sample, costs in float32.

    Args:
        logits: (layers, B, Q, classes).
        boxes: (layers, B, Q, 10) network boxes; the cost is their L1 distance without the velocity.
        gt_labels: per sample (n,) int64, on any device.
        gt_boxes: per sample (n, 10) network boxes, on any device.
        tokens: sample tokens, for the error.

    Returns:
        (layers, B, Q) int64 on the device of `logits`: index of the matched ground truth, -1 for
        background.

    Raises:
        FloatingPointError: a cost is NaN or infinite; names the sample and the term.
    """
    layers, B, Q, _ = logits.shape
    counts = [len(labels) for labels in gt_labels]
    matched = np.full((layers, B, Q), -1)
    longest = max(counts, default=0)
    if longest == 0 or Q == 0:
        return upload(matched, logits.device, torch.int64)

    labels = upload(pad_sequence(gt_labels, batch_first=True), logits.device, torch.int64)
    targets = upload(pad_sequence(gt_boxes, batch_first=True), logits.device, torch.float32)
    targets = targets[..., :MATCHED_NUMBERS]
    class_cost = focal_cost(logits.float()).gather(
        -1, labels[None, :, None].expand(layers, B, Q, -1)
    )
    numbers = boxes.float()[..., :MATCHED_NUMBERS].flatten(0, 1)
    box_cost = torch.cdist(numbers, targets.repeat(layers, 1, 1), p=1).view(layers, B, Q, longest)
    # One transfer for all layers and samples.
    costs = torch.stack([class_weight * class_cost, box_weight * box_cost]).cpu().numpy()
    for b, n in enumerate(counts):
        for layer in range(layers):
            pair = costs[:, layer, b, :, :n]
            if not np.isfinite(pair).all():
                _raise_non_finite(pair, tokens[b], layer, gt_boxes[b])
            # Few rows and many columns: twice as fast as the other way round.
            cols, rows = linear_sum_assignment(pair.sum(0).T)
            matched[layer, b, rows] = cols
    return upload(matched, logits.device, torch.int64)


def _raise_non_finite(pair: np.ndarray, token: str, layer: int, gt_boxes: Tensor) -> None:
    class_ok, box_ok = (np.isfinite(cost).all() for cost in pair)
    terms = [name for name, ok in (("class", class_ok), ("box", box_ok)) if not ok]
    blame = "prediction"
    if class_ok and not gt_boxes[:, :MATCHED_NUMBERS].isfinite().all():
        blame = "ground truth"
    raise FloatingPointError(
        f"matching: the {' and '.join(terms)} cost of sample {token} is not finite in decoder "
        f"layer {layer} (a {blame} is NaN or infinite); expected finite numbers"
    )
