"""The functions of upstream's binary module that other packages call directly.

They take upstream's arguments. Those that fill tensors made by the caller there do so here too.
"""

import torch
from torch import Tensor

from . import ops
from .ops.multi_scale_deform_attn import MultiScaleDeformableAttnFunction

_NOT_YET = ("dynamic_point_to_voxel_forward", "dynamic_point_to_voxel_backward")


def __getattr__(name: str):
    """mmdet3d asks on import for functions that only some models call: those fail when called."""
    if name not in _NOT_YET:
        raise AttributeError(f"mmcv._ext.{name} is not implemented in this build")

    def absent(*args, **kwargs):
        raise NotImplementedError(f"mmcv._ext.{name} is not implemented in this build yet")

    return absent


def ms_deform_attn_forward(
    value: Tensor,
    value_spatial_shapes: Tensor,
    value_level_start_index: Tensor,
    sampling_locations: Tensor,
    attention_weights: Tensor,
    im2col_step: int,
) -> Tensor:
    """Multi-scale deformable attention, (B, Q, M * D); see `mmcv.ops.multi_scale_deform_attn`."""
    with torch.no_grad():
        return MultiScaleDeformableAttnFunction.apply(
            value,
            value_spatial_shapes,
            value_level_start_index,
            sampling_locations,
            attention_weights,
            im2col_step,
        )


def ms_deform_attn_backward(
    value: Tensor,
    value_spatial_shapes: Tensor,
    value_level_start_index: Tensor,
    sampling_locations: Tensor,
    attention_weights: Tensor,
    grad_output: Tensor,
    grad_value: Tensor,
    grad_sampling_loc: Tensor,
    grad_attn_weight: Tensor,
    im2col_step: int,
) -> None:
    """Adds the gradients of `ms_deform_attn_forward` to the three `grad_` tensors."""
    inputs = [
        tensor.detach().requires_grad_()
        for tensor in (value, sampling_locations, attention_weights)
    ]
    with torch.enable_grad():
        output = MultiScaleDeformableAttnFunction.apply(
            inputs[0],
            value_spatial_shapes,
            value_level_start_index,
            inputs[1],
            inputs[2],
            im2col_step,
        )
    gradients = torch.autograd.grad(output, inputs, grad_output)
    for total, gradient in zip((grad_value, grad_sampling_loc, grad_attn_weight), gradients):
        total += gradient


def hard_voxelize_forward(
    points: Tensor,
    voxel_size: Tensor,
    coors_range: Tensor,
    voxels: Tensor,
    coors: Tensor,
    num_points_per_voxel: Tensor,
    voxel_num: Tensor,
    max_points: int,
    max_voxels: int,
    NDim: int = 3,
    deterministic: bool = True,
) -> None:
    """Groups points into voxels by `mmcv.ops.voxelization`; `voxel_num` becomes their number."""
    _three_axes(NDim)
    found = ops.voxelization(
        points, voxel_size.tolist(), coors_range.tolist(), max_points, max_voxels, deterministic
    )
    count = len(found[0])
    for target, rows in zip((voxels, coors, num_points_per_voxel), found):
        target[:count] = rows
    voxel_num.fill_(count)


def dynamic_voxelize_forward(
    points: Tensor, voxel_size: Tensor, coors_range: Tensor, coors: Tensor, NDim: int = 3
) -> None:
    """Writes the voxel (z, y, x) of every point into `coors`, by `mmcv.ops.voxelization`."""
    _three_axes(NDim)
    coors.copy_(ops.voxelization(points, voxel_size.tolist(), coors_range.tolist(), -1, -1))


def _three_axes(count: int) -> None:
    if count != 3:
        raise ValueError(f"NDim must be 3, got {count}")


def nms(boxes: Tensor, scores: Tensor, iou_threshold: float, offset: int) -> Tensor:
    """Indices (K,) int64 of the boxes kept by `mmcv.ops.nms`, by falling score."""
    return ops.nms(boxes, scores, iou_threshold, offset)[1]


def get_compiler_version() -> str:
    return ops.get_compiler_version()


def get_compiling_cuda_version() -> str:
    return ops.get_compiling_cuda_version()
