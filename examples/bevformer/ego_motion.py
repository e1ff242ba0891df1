"""How the ego vehicle moved since the previous frame, applied to BEV maps.

`can_bus` is the vector of 18 numbers of `autodrive.data.can_bus`, relative to the previous frame.
"""

import numpy as np
import torch
from torch import Tensor

from autodrive.data.can_bus import HEADING
from autodrive.engine.transfer import upload


def ego_shift(
    can_bus: np.ndarray, pc_range: tuple[float, ...], bev_h: int, bev_w: int
) -> np.ndarray:
    """Ego displacement (B, 2), (right, forward), in units of the grid, from can_bus (B, 18)."""
    x0, y0, _, x1, y1, _ = pc_range
    dx, dy = can_bus[:, 0], can_bus[:, 1]
    distance = np.hypot(dx, dy)
    angle = can_bus[:, HEADING] - np.arctan2(dy, dx)
    right = distance * np.sin(angle) / ((x1 - x0) / bev_w) / bev_w
    forward = distance * np.cos(angle) / ((y1 - y0) / bev_h) / bev_h
    return np.stack([right, forward], axis=-1)


def rotate_bev(
    bev: Tensor, degrees: np.ndarray, center: tuple[float, float], bev_shape: tuple[int, int]
) -> Tensor:
    """Turns each sample's BEV map by the vehicle's own turn; nearest cell, zeros from outside.

    Args:
        bev: (B, L, C) with L = bev_h * bev_w.
        degrees: (B,) turn of the vehicle, counter-clockwise positive.
        center: (x, y) of the rotation, in cells counted from the corner of the map.
        bev_shape: (bev_h, bev_w).

    Returns:
        (B, L, C), a new tensor.
    """
    bev_h, bev_w = bev_shape
    device = bev.device
    angle = upload(np.deg2rad(degrees), device, torch.float64).view(-1, 1, 1)
    v = torch.arange(bev_h, dtype=torch.float64, device=device).view(1, -1, 1) + 0.5 - center[1]
    u = torch.arange(bev_w, dtype=torch.float64, device=device).view(1, 1, -1) + 0.5 - center[0]
    col = (center[0] + u * angle.cos() - v * angle.sin() - 0.5).round().long()
    row = (center[1] + u * angle.sin() + v * angle.cos() - 0.5).round().long()
    inside = (col >= 0) & (col < bev_w) & (row >= 0) & (row < bev_h)
    index = torch.where(inside, row * bev_w + col, 0).flatten(1).unsqueeze(-1)
    turned = bev.gather(1, index.expand(-1, -1, bev.shape[-1]))
    return turned * inside.flatten(1).unsqueeze(-1)
