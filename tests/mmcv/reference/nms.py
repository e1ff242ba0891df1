"""Greedy non-maximum suppression in float64, one pair after the other."""

import numpy as np


def iou(a, b, offset):
    w = max(min(a[2], b[2]) - max(a[0], b[0]) + offset, 0)
    h = max(min(a[3], b[3]) - max(a[1], b[1]) + offset, 0)
    areas = [(x[2] - x[0] + offset) * (x[3] - x[1] + offset) for x in (a, b)]
    union = sum(areas) - w * h
    return w * h / union if union else float("nan")


def nms(boxes, scores, iou_threshold, offset=0):
    boxes = np.asarray(boxes, np.float64)
    kept = []
    for i in np.argsort(-np.asarray(scores, np.float64), kind="stable"):
        if not any(iou(boxes[i], boxes[j], offset) > iou_threshold for j in kept):
            kept.append(int(i))
    return kept
