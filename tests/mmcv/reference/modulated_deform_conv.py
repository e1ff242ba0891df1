"""Modulated deformable convolution in float64, one tap after the other."""

import math

import numpy as np
import torch


def modulated_deform_conv2d(
    image, offset, mask, weight, bias, stride, padding, dilation, groups, deform_groups
):
    """All pairs are (vertical, horizontal)."""
    image, offset, mask, weight = (np.asarray(x) for x in (image, offset, mask, weight))
    B, channels, H, W = image.shape
    out_channels, group_channels, kh, kw = weight.shape
    rows, columns = offset.shape[2:]
    output = np.zeros((B, out_channels, rows, columns))
    for b, o, y, x in np.ndindex(*output.shape):
        first = o // (out_channels // groups) * group_channels
        for c, i, j in np.ndindex(group_channels, kh, kw):
            channel = first + c
            tap = (channel // (channels // deform_groups) * kh + i) * kw + j
            at_y = y * stride[0] - padding[0] + i * dilation[0] + offset[b, 2 * tap, y, x]
            at_x = x * stride[1] - padding[1] + j * dilation[1] + offset[b, 2 * tap + 1, y, x]
            sampled = 0.0
            for iy in (math.floor(at_y), math.floor(at_y) + 1):
                for ix in (math.floor(at_x), math.floor(at_x) + 1):
                    if 0 <= iy < H and 0 <= ix < W:
                        share = (1 - abs(at_y - iy)) * (1 - abs(at_x - ix))
                        sampled += share * image[b, channel, iy, ix]
            output[b, o, y, x] += weight[o, c, i, j] * mask[b, tap, y, x] * sampled
    return torch.from_numpy(output) + bias[:, None, None]
