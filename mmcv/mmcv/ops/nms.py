"""Greedy non-maximum suppression of axis-aligned boxes."""

from collections.abc import Callable

import numpy as np
import torch
from mmengine.utils import deprecated_api_warning
from torch import Tensor

from .checks import check_dtype, check_same_device, check_shape
from .library import ops, register_fake


@deprecated_api_warning({"iou_thr": "iou_threshold"})
def nms(
    boxes: Tensor | np.ndarray,
    scores: Tensor | np.ndarray,
    iou_threshold: float,
    offset: int = 0,
    score_threshold: float = 0,
    max_num: int = -1,
) -> tuple[Tensor, Tensor] | tuple[np.ndarray, np.ndarray]:
    """Keeps boxes by falling score, without those that overlap a kept one by more than the threshold.

    Args:
        boxes: (N, 4) as (x1, y1, x2, y2); float16 and bfloat16 are compared in float32. NumPy arrays give
            NumPy results.
        scores: (N,). Among equal scores the lower index comes first.
        iou_threshold: intersection over union above which a box is suppressed.
        offset: 0, or 1 if x2 and y2 are the last pixels of a box: width x2 - x1 + 1.
        score_threshold: if above 0, only boxes with a larger score take part.
        max_num: if above 0, how many boxes are kept at most.

    Returns:
        dets (K, 5), the boxes and their scores, differentiable; inds (K,) int64, their indices.

    Raises:
        TypeError, ValueError: naming the argument, what it is and what it must be.
    """
    if isinstance(boxes, np.ndarray):
        found = _nms(
            torch.from_numpy(boxes),
            torch.as_tensor(scores),
            iou_threshold,
            offset,
            score_threshold,
            max_num,
        )
        return found[0].numpy(), found[1].numpy()
    return _nms(boxes, scores, iou_threshold, offset, score_threshold, max_num)


def _nms(
    boxes: Tensor,
    scores: Tensor,
    iou_threshold: float,
    offset: int,
    score_threshold: float,
    max_num: int,
) -> tuple[Tensor, Tensor]:
    name = "nms"
    check_dtype(name, "boxes", boxes)
    check_dtype(name, "scores", scores)
    check_shape(name, "boxes", boxes, "(N, 4)")
    if tuple(scores.shape) != (len(boxes),):
        raise ValueError(f"{name}: scores must be ({len(boxes)},), got {tuple(scores.shape)}")
    if offset not in (0, 1):
        raise ValueError(f"{name}: offset must be 0 or 1, got {offset}")
    check_same_device(name, boxes=boxes, scores=scores)
    precise = torch.float64 if boxes.dtype == torch.float64 else torch.float32
    order = scores.detach().argsort(descending=True, stable=True)
    if score_threshold > 0:
        order = order[scores.detach()[order] > score_threshold]
    ordered = boxes.detach()[order].to(precise)
    inds = order[ops.nms(ordered, float(iou_threshold), int(offset))]
    if max_num > 0:
        inds = inds[:max_num]
    return torch.cat([boxes[inds], scores[inds, None]], dim=1), inds


@register_fake("nms")
def _(boxes, iou_threshold, offset):
    return boxes.new_empty(boxes.shape[0], dtype=torch.bool)


class NMSop:
    """The indices of `nms` behind the interface of an autograd Function."""

    @staticmethod
    def apply(
        bboxes: Tensor,
        scores: Tensor,
        iou_threshold: float,
        offset: int,
        score_threshold: float,
        max_num: int,
    ) -> Tensor:
        return nms(bboxes, scores, iou_threshold, offset, score_threshold, max_num)[1]


def batched_nms(
    boxes: Tensor,
    scores: Tensor,
    idxs: Tensor,
    nms_cfg: dict | None,
    class_agnostic: bool = False,
) -> tuple[Tensor, Tensor]:
    """Suppresses boxes within each group, such as a class, by moving the groups apart.

    Args:
        boxes: (N, 4) as (x1, y1, x2, y2), or (N, 5) as (cx, cy, w, h, angle).
        scores: (N,).
        idxs: (N,) group of each box.
        nms_cfg: `type`, the name of a function of this module or a function itself ("nms");
            `class_agnostic`, instead of the argument; `split_thr`, from how many boxes on groups are
            handled one by one (10000); `max_num`; the rest are keywords of that function. None: no
            suppression, only sorting.
        class_agnostic: boxes of all groups suppress each other.

    Returns:
        dets (K, 5 or 6), the boxes and their scores; keep (K,) int64, their indices, by falling score.

    Raises:
        ValueError: `type` is not a function of this module.
    """
    if nms_cfg is None:
        values, order = scores.sort(descending=True, stable=True)
        return torch.cat([boxes[order], values[:, None]], -1), order
    options = dict(nms_cfg)
    class_agnostic = options.pop("class_agnostic", class_agnostic)
    suppress = _function(options.pop("type", "nms"))
    split = options.pop("split_thr", 10000)
    if len(boxes) == 0:
        return torch.cat([boxes, scores[:, None]], -1), idxs.new_zeros(0, dtype=torch.int64)
    moved = boxes if class_agnostic else _move_apart(boxes, idxs)
    if len(boxes) < split:
        dets, keep = suppress(moved, scores, **options)
        return torch.cat([boxes[keep], dets[:, -1:]], -1), keep
    max_num = options.pop("max_num", -1)
    kept = torch.zeros_like(scores, dtype=torch.bool)
    values = torch.zeros_like(scores)
    for group in idxs.unique():
        members = (idxs == group).nonzero()[:, 0]
        dets, keep = suppress(moved[members], scores[members], **options)
        kept[members[keep]] = True
        values = values.index_copy(0, members[keep], dets[:, -1])
    keep = kept.nonzero()[:, 0]
    keep = keep[values[keep].argsort(descending=True, stable=True)]
    if max_num > 0:
        keep = keep[:max_num]
    return torch.cat([boxes[keep], values[keep, None]], -1), keep


def _function(kind: str | Callable) -> Callable:
    if callable(kind):
        return kind
    # Stand-ins for functions that do not exist yet are put into this module too.
    found = globals().get(kind) if "nms" in str(kind) and not str(kind).startswith("_") else None
    if not callable(found):
        raise ValueError(
            f"batched_nms: nms_cfg['type'] must be nms or another op here, got {kind!r}"
        )
    return found


def _move_apart(boxes: Tensor, idxs: Tensor) -> Tensor:
    if boxes.shape[-1] == 5:
        largest = boxes[:, :2].max() + boxes[:, 2:4].max()
        shift = idxs.to(boxes) * (largest + 1)
        return torch.cat([boxes[:, :2] + shift[:, None], boxes[:, 2:]], -1)
    return boxes + (idxs.to(boxes) * (boxes.max() + 1))[:, None]
