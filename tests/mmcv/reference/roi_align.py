"""RoIAlign in float64, one sample after the other."""

import math

import numpy as np


def sample(image, y, x):
    """Bilinear in (C, H, W); the border is repeated up to one pixel outside, beyond is 0."""
    _, H, W = image.shape
    if y < -1 or y > H or x < -1 or x > W:
        return np.zeros(len(image))
    y, x = min(max(y, 0), H - 1), min(max(x, 0), W - 1)
    top, left = math.floor(y), math.floor(x)
    bottom, right = min(top + 1, H - 1), min(left + 1, W - 1)
    fy, fx = y - top, x - left
    upper = (1 - fx) * image[:, top, left] + fx * image[:, top, right]
    lower = (1 - fx) * image[:, bottom, left] + fx * image[:, bottom, right]
    return (1 - fy) * upper + fy * lower


def roi_align(image, rois, size, scale, sampling_ratio, mode, aligned):
    image = np.asarray(image, np.float64)
    rois = np.asarray(rois, np.float64)
    output = np.zeros((len(rois), image.shape[1], *size))
    offset = 0.5 if aligned else 0
    for k, (index, *corners) in enumerate(rois):
        x1, y1, x2, y2 = (corner * scale - offset for corner in corners)
        w, h = x2 - x1, y2 - y1
        if not aligned:
            w, h = max(w, 1), max(h, 1)
        bin_h, bin_w = h / size[0], w / size[1]
        rows = sampling_ratio or math.ceil(bin_h)
        columns = sampling_ratio or math.ceil(bin_w)
        if rows <= 0 or columns <= 0:
            continue
        for i, j in np.ndindex(*size):
            samples = [
                sample(
                    image[int(index)],
                    y1 + i * bin_h + (r + 0.5) * bin_h / rows,
                    x1 + j * bin_w + (c + 0.5) * bin_w / columns,
                )
                for r in range(rows)
                for c in range(columns)
            ]
            output[k, :, i, j] = np.mean(samples, 0) if mode == "avg" else np.max(samples, 0)
    return output
