"""Intersection over union of rotated rectangles."""

import torch
from torch import Tensor

from .checks import check_dtype, check_same_device, check_shape
from .library import ops, register_fake


def box_iou_rotated(
    bboxes1: Tensor,
    bboxes2: Tensor,
    mode: str = "iou",
    aligned: bool = False,
    clockwise: bool = True,
) -> Tensor:
    """Area shared by rotated rectangles over the area of both ("iou") or of the first one ("iof").

    Args:
        bboxes1: (N, 5) as (cx, cy, w, h, angle), angle in radians.
        bboxes2: (M, 5); M = N with `aligned`.
        mode: "iou" or "iof".
        aligned: compare the boxes one by one instead of each with each.
        clockwise: a positive angle turns x towards y (clockwise in an image, whose y points down).

    Returns:
        (N, M), or (N,) with `aligned`; 0 for boxes with an area below 1e-14. dtype of `bboxes1`;
        computed in float64 for float64, else in float32. No gradient.

    Raises:
        TypeError, ValueError: naming the argument, what it is and what it must be.
    """
    name = "box_iou_rotated"
    for argument, boxes in {"bboxes1": bboxes1, "bboxes2": bboxes2}.items():
        check_dtype(name, argument, boxes)
        check_shape(name, argument, boxes, "(N, 5)")
    check_same_device(name, bboxes1=bboxes1, bboxes2=bboxes2)
    if mode not in ("iou", "iof"):
        raise ValueError(f"{name}: mode must be iou or iof, got {mode!r}")
    if aligned and len(bboxes1) != len(bboxes2):
        raise ValueError(
            f"{name}: bboxes2 must be ({len(bboxes1)}, 5) with aligned, got {tuple(bboxes2.shape)}"
        )
    precise = torch.float64 if bboxes1.dtype == torch.float64 else torch.float32
    overlaps = ops.box_iou_rotated(
        bboxes1.detach().to(precise).contiguous(),
        bboxes2.detach().to(precise).contiguous(),
        mode == "iof",
        aligned,
        clockwise,
    )
    return overlaps.to(bboxes1.dtype)


@register_fake("box_iou_rotated")
def _(boxes1, boxes2, iof, aligned, clockwise):
    size = (boxes1.shape[0],) if aligned else (boxes1.shape[0], boxes2.shape[0])
    return boxes1.new_empty(size)
