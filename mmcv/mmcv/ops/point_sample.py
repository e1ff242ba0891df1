"""Features of an image at points (Kirillov et al. 2020, "PointRend", section 3.1)."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.utils import _pair

from .checks import check_dtype, check_same_device, check_shape


def normalize(grid: Tensor) -> Tensor:
    """Coordinates from -1...1 to 0...1."""
    return (grid + 1) / 2


def denormalize(grid: Tensor) -> Tensor:
    """Coordinates from 0...1 to -1...1."""
    return grid * 2 - 1


def generate_grid(num_grid: int, size: tuple[int, int], device: torch.device | str) -> Tensor:
    """Centres of the cells of an (h, w) grid over 0...1: (num_grid, h * w, 2) as (x, y), row by row."""
    h, w = size
    y, x = torch.meshgrid(
        (torch.arange(h, device=device) + 0.5) / h,
        (torch.arange(w, device=device) + 0.5) / w,
        indexing="ij",
    )
    return torch.stack([x, y], dim=-1).view(1, h * w, 2).expand(num_grid, -1, -1)


def get_shape_from_feature_map(x: Tensor) -> Tensor:
    """(1, 1, 2) as (W, H), dtype and device of x (N, C, H, W)."""
    return x.new_tensor([[[x.shape[3], x.shape[2]]]])


def rel_roi_point_to_abs_img_point(rois: Tensor, rel_roi_points: Tensor) -> Tensor:
    """Points in 0...1 of a box to the coordinates that the box is in.

    Args:
        rois: (N, 4) as x1, y1, x2, y2, or (N, 5) with an index before them.
        rel_roi_points: (N, P, 2) as (x, y).

    Returns:
        (N, P, 2), without gradient.
    """
    name = "rel_roi_point_to_abs_img_point"
    if rois.dim() != 2 or rois.shape[1] not in (4, 5):
        raise ValueError(f"{name}: rois must be (N, 4) or (N, 5), got {tuple(rois.shape)}")
    check_shape(name, "rel_roi_points", rel_roi_points, "(N, P, 2)")
    if len(rois) != len(rel_roi_points):
        raise ValueError(
            f"{name}: rel_roi_points must be for {len(rois)} rois, got {len(rel_roi_points)}"
        )
    boxes = rois.detach()[:, None, -4:]
    low, high = boxes[..., :2], boxes[..., 2:]
    return rel_roi_points.detach() * (high - low) + low


def abs_img_point_to_rel_img_point(
    abs_img_points: Tensor, img: tuple[int, int] | Tensor, spatial_scale: float = 1.0
) -> Tensor:
    """Points (N, P, 2) in pixels to 0...1 of an image, given as (h, w) or as a tensor (N, C, H, W).

    `spatial_scale` is the size of the image's pixels in those of the points.
    """
    h, w = img.shape[-2:] if isinstance(img, Tensor) else img
    return abs_img_points / abs_img_points.new_tensor([w, h]) * spatial_scale


def rel_roi_point_to_rel_img_point(
    rois: Tensor,
    rel_roi_points: Tensor,
    img: tuple[int, int] | Tensor,
    spatial_scale: float = 1.0,
) -> Tensor:
    """Points in 0...1 of boxes to 0...1 of the image; arguments as in the two steps above."""
    points = rel_roi_point_to_abs_img_point(rois, rel_roi_points)
    return abs_img_point_to_rel_img_point(points, img, spatial_scale)


def point_sample(input: Tensor, points: Tensor, align_corners: bool = False, **kwargs) -> Tensor:
    """`grid_sample` at points in 0...1 instead of -1...1.

    Args:
        input: (N, C, H, W).
        points: (N, P, 2) or (N, h, w, 2) as (x, y).
        kwargs: for `torch.nn.functional.grid_sample`.

    Returns:
        (N, C, P) or (N, C, h, w), dtype of `input`.
    """
    name = "point_sample"
    check_dtype(name, "input", input)
    check_shape(name, "input", input, "(N, C, H, W)")
    check_same_device(name, input=input, points=points)
    if points.dim() not in (3, 4) or points.shape[-1] != 2:
        raise ValueError(
            f"{name}: points must be (N, P, 2) or (N, h, w, 2), got {tuple(points.shape)}"
        )
    grid = denormalize(points)
    if points.dim() == 4:
        return F.grid_sample(input, grid, align_corners=align_corners, **kwargs)
    return F.grid_sample(input, grid.unsqueeze(2), align_corners=align_corners, **kwargs).squeeze(3)


def bilinear_grid_sample(im: Tensor, grid: Tensor, align_corners: bool = False) -> Tensor:
    """`grid_sample` (bilinear, zeros outside) of elementary operations, for exporters that lack it.

    Args:
        im: (N, C, H, W).
        grid: (N, h, w, 2) as (x, y) in -1...1.

    Returns:
        (N, C, h, w).
    """
    N, C, H, W = im.shape
    h, w = grid.shape[1:3]
    size = grid.new_tensor([W, H])
    position = normalize(grid) * (size - 1) if align_corners else normalize(grid) * size - 0.5
    corner = position.floor()
    fraction = position - corner
    pixels, total = im.flatten(2), im.new_zeros(N, C, h * w)
    for dy in (0, 1):
        for dx in (0, 1):
            x, y = corner[..., 0] + dx, corner[..., 1] + dy
            weight_x = fraction[..., 0] if dx else 1 - fraction[..., 0]
            weight_y = fraction[..., 1] if dy else 1 - fraction[..., 1]
            inside = (x >= 0) & (x < W) & (y >= 0) & (y < H)
            index = (y.clamp(0, H - 1) * W + x.clamp(0, W - 1)).long().view(N, 1, -1)
            weight = torch.where(inside, weight_x * weight_y, 0).view(N, 1, -1)
            total = total + pixels.gather(2, index.expand(-1, C, -1)) * weight
    return total.view(N, C, h, w)


class SimpleRoIAlign(nn.Module):
    """One bilinear sample in the middle of each bin.

    Boxes are taken image by image: the output is in the order of the boxes if those are sorted by image.

    Args:
        output_size: bins (h, w), or one number for both.
        spatial_scale: features per unit of the boxes.
        aligned: pixel centres lie at integers plus 1/2, as `align_corners=False` has it.
    """

    def __init__(
        self, output_size: int | tuple[int, int], spatial_scale: float, aligned: bool = True
    ) -> None:
        super().__init__()
        self.output_size = _pair(output_size)
        self.spatial_scale = float(spatial_scale)
        self.aligned = aligned
        self.use_torchvision = False

    def forward(self, features: Tensor, rois: Tensor) -> Tensor:
        """features (N, C, H, W), rois (K, 5) with the image's index first → (K, C, h, w)."""
        h, w = self.output_size
        grid = generate_grid(len(rois), self.output_size, rois.device)
        points = rel_roi_point_to_rel_img_point(
            rois, grid.to(rois.dtype), features, self.spatial_scale
        )
        parts = [features.new_zeros(features.shape[1], 0)]
        for index, image in enumerate(features):
            chosen = points[rois[:, 0] == index]
            sampled = point_sample(
                image.unsqueeze(0), chosen.view(1, -1, 2).to(image.dtype), not self.aligned
            )
            parts.append(sampled.squeeze(0))
        pooled = torch.cat(parts, dim=1).view(features.shape[1], -1, h, w)
        return pooled.transpose(0, 1)

    def extra_repr(self) -> str:
        return f"output_size={self.output_size}, spatial_scale={self.spatial_scale}, aligned={self.aligned}"
