"""Grouping of a point cloud into voxels (Zhou & Tuzel 2018, "VoxelNet", section 2.1)."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.modules.utils import _pair

from .checks import check_dtype
from .library import ops, register_fake


def voxelization(
    points: Tensor,
    voxel_size: Sequence[float],
    coors_range: Sequence[float],
    max_points: int = 35,
    max_voxels: int = 20000,
    deterministic: bool = True,
) -> Tensor | tuple[Tensor, Tensor, Tensor]:
    """Finds the voxel of each point, and gathers the points of each voxel.

    A point is in cell floor((p - low) / size) on each axis, and outside if that is not among the
    round((high - low) / size) cells; the upper bound and NaN are outside.

    Args:
        points: (N, F) floating, F >= 3; columns 0...2 are x, y, z, m.
        voxel_size: (3) sizes in x, y, z, m.
        coors_range: (6) x, y, z of the lowest, then of the highest corner, m.
        max_points: points kept per voxel, the first ones; -1 for cells only.
        max_voxels: voxels made, those of the first points; -1 for cells only.
        deterministic: accepted; results are always deterministic.

    Returns:
        voxels (M, max_points, F), zeros behind the points of a voxel, dtype of `points`; coors (M, 3)
        int32 as (z, y, x); num_points (M,) int32. Voxels are in the order of their first points.
        With max_points or max_voxels -1: coors (N, 3) int32 alone, -1 for points outside. No gradient.

    Raises:
        TypeError, ValueError: naming the argument, what it is and what it must be.
    """
    name = "voxelization"
    check_dtype(name, "points", points)
    if points.dim() != 2 or points.shape[1] < 3:
        raise ValueError(f"{name}: points must be (N, 3 or more), got {tuple(points.shape)}")
    voxel_size, coors_range = _numbers(voxel_size), _numbers(coors_range)
    if len(voxel_size) != 3 or min(voxel_size) <= 0:
        raise ValueError(f"{name}: voxel_size must be 3 positive numbers, got {voxel_size}")
    if len(coors_range) != 6 or any(
        low >= high for low, high in zip(coors_range[:3], coors_range[3:])
    ):
        raise ValueError(
            f"{name}: coors_range must be a lowest and a highest x, y, z, got {coors_range}"
        )
    points = points.detach().contiguous()
    if max_points == -1 or max_voxels == -1:
        return ops.dynamic_voxelize(points, voxel_size, coors_range)
    for argument, number in {"max_points": max_points, "max_voxels": max_voxels}.items():
        if number < 0:
            raise ValueError(f"{name}: {argument} must be -1 or at least 0, got {number}")
    return ops.hard_voxelize(points, voxel_size, coors_range, max_points, max_voxels)


def _numbers(values: Sequence[float]) -> list[float]:
    return [float(value) for value in values]


@register_fake("dynamic_voxelize")
def _(points, voxel_size, coors_range):
    return points.new_empty(points.shape[0], 3, dtype=torch.int32)


@register_fake("hard_voxelize")
def _(points, voxel_size, coors_range, max_points, max_voxels):
    count = torch.library.get_ctx().new_dynamic_size()
    return (
        points.new_empty(count, max_points, points.shape[1]),
        points.new_empty(count, 3, dtype=torch.int32),
        points.new_empty(count, dtype=torch.int32),
    )


class Voxelization(nn.Module):
    """`voxelization` with its parameters.

    Args:
        voxel_size, point_cloud_range, max_num_points: voxel_size, coors_range, max_points of the function.
        max_voxels: a number, or one for training and one for testing.
        deterministic: accepted; results are always deterministic.
    """

    def __init__(
        self,
        voxel_size: Sequence[float],
        point_cloud_range: Sequence[float],
        max_num_points: int,
        max_voxels: int | Sequence[int] = 20000,
        deterministic: bool = True,
    ) -> None:
        super().__init__()
        self.voxel_size = voxel_size
        self.point_cloud_range = point_cloud_range
        self.max_num_points = max_num_points
        self.max_voxels = _pair(max_voxels)
        self.deterministic = deterministic
        bounds = torch.tensor(point_cloud_range, dtype=torch.float32)
        sizes = torch.tensor(voxel_size, dtype=torch.float32)
        self.grid_size = torch.round((bounds[3:] - bounds[:3]) / sizes).long()
        self.pcd_shape = [1, *self.grid_size[:2].tolist()[::-1]]

    def forward(self, points: Tensor) -> Tensor | tuple[Tensor, Tensor, Tensor]:
        return voxelization(
            points,
            self.voxel_size,
            self.point_cloud_range,
            self.max_num_points,
            self.max_voxels[0 if self.training else 1],
            self.deterministic,
        )

    def extra_repr(self) -> str:
        return (
            f"voxel_size={self.voxel_size}, point_cloud_range={self.point_cloud_range}, "
            f"max_num_points={self.max_num_points}, max_voxels={self.max_voxels}, "
            f"deterministic={self.deterministic}"
        )
