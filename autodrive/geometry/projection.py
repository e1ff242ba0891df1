"""Points of the lidar frame in the cameras."""

import torch
from torch import Tensor

MIN_DEPTH = 1e-5  # metres; nearer points count as behind the camera


def pillar_points(pc_range: tuple[float, ...], bev_h: int, bev_w: int, num_heights: int) -> Tensor:
    """Points above the centre of every BEV cell, (bev_h * bev_w, num_heights, 3) float32, metres,
    lidar frame.

    Cells are counted row by row, row = y, column = x, both increasing. Heights are spread evenly
    from half a metre above the bottom of `pc_range` (x0, y0, z0, x1, y1, z1) to half a metre below
    its top (BEVFormer, section 3.3).
    """
    x0, y0, z0, x1, y1, z1 = pc_range
    x = x0 + (torch.arange(bev_w) + 0.5) / bev_w * (x1 - x0)
    y = y0 + (torch.arange(bev_h) + 0.5) / bev_h * (y1 - y0)
    z = z0 + torch.linspace(0.5, z1 - z0 - 0.5, num_heights)
    y, x, z = torch.meshgrid(y, x, z, indexing="ij")
    return torch.stack([x, y, z], dim=-1).reshape(bev_h * bev_w, num_heights, 3)


def project_points(
    points: Tensor, lidar2img: Tensor, img_shape: tuple[int, int]
) -> tuple[Tensor, Tensor]:
    """Projects points into every camera, always in float32 and without TF32.

    Args:
        points: (..., 3) in metres, lidar frame.
        lidar2img: (B, N_cam, 4, 4), for the pixels of the image that the network sees.
        img_shape: (h, w) of that image, padding included.

    Returns:
        uv (B, N_cam, ..., 2): position divided by the size of the image, so 0...1 inside. A point
            less than
        `MIN_DEPTH` in front of a camera is divided by that depth and so lands far away.
        visible (B, N_cam, ...) bool: in front of the camera and strictly inside its image.
    """
    if points.shape[-1] != 3:
        raise ValueError(f"points must be (..., 3), got {tuple(points.shape)}")
    if lidar2img.dim() != 4 or lidar2img.shape[-2:] != (4, 4):
        raise ValueError(f"lidar2img must be (B, N_cam, 4, 4), got {tuple(lidar2img.shape)}")
    with torch.autocast(points.device.type, enabled=False):
        batch_shape = lidar2img.shape[:2] + (1,) * (points.dim() - 1)
        x, y, z = points.float().unbind(-1)
        rows = lidar2img.float()[:, :, :3].flatten(2).unbind(-1)
        m = [row.view(batch_shape) for row in rows]
        px = m[0] * x + m[1] * y + m[2] * z + m[3]
        py = m[4] * x + m[5] * y + m[6] * z + m[7]
        depth = m[8] * x + m[9] * y + m[10] * z + m[11]
        divisor = depth.clamp(min=MIN_DEPTH)
        u = px / divisor / img_shape[1]
        v = py / divisor / img_shape[0]
    visible = (depth > MIN_DEPTH) & (u > 0) & (u < 1) & (v > 0) & (v < 1)
    return torch.stack([u, v], dim=-1), visible
