"""Multi-scale deformable attention in float64, one number after the other."""

import math

import numpy as np


def ms_deform_attn(value, shapes, locations, weights):
    """Arguments as NumPy arrays in the shapes of `mmcv.ops.multi_scale_deform_attn.ms_deform_attn`."""
    value, locations, weights = (np.asarray(x, np.float64) for x in (value, locations, weights))
    B, _, H, C = value.shape
    Q, L, P = weights.shape[1], weights.shape[3], weights.shape[4]
    output = np.zeros((B, Q, H, C))
    starts = np.cumsum([0, *(h * w for h, w in shapes)])
    for b, q, h, level, p in np.ndindex(B, Q, H, L, P):
        rows, columns = shapes[level]
        x = locations[b, q, h, level, p, 0] * columns - 0.5
        y = locations[b, q, h, level, p, 1] * rows - 0.5
        if not (-1 < x < columns and -1 < y < rows):
            continue
        for iy in (math.floor(y), math.floor(y) + 1):
            for ix in (math.floor(x), math.floor(x) + 1):
                if 0 <= iy < rows and 0 <= ix < columns:
                    share = (1 - abs(y - iy)) * (1 - abs(x - ix))
                    pixel = value[b, starts[level] + iy * columns + ix, h]
                    output[b, q, h] += weights[b, q, h, level, p] * share * pixel
    return output.reshape(B, Q, H * C)
