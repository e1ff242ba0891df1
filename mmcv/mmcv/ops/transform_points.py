"""Rotations, rigid transforms and projections of points, in one pass over the points."""

import math

import torch
from torch import Tensor

from .checks import check_dtype, check_same_device
from .library import ops, register_autograd, register_fake


def transform_points(points: Tensor, matrices: Tensor) -> Tensor:
    """Applies matrices to points whose leading dimensions broadcast against theirs.

    | points | matrices | result |
    |---|---|---|
    | (..., 3) | (..., 3, 3) | M p, (..., 3) |
    | (..., 3) | (..., 3, 4) or (..., 4, 4) | M[:3, :3] p + M[:3, 3], (..., 3); a last row is not read |
    | (..., 4) | (..., 4, 4) | M p, (..., 4) |
    | (..., 4) | (..., 3, 4) | M p, (..., 3) |

    The dimensions of `points` before the last and those of `matrices` before the last two broadcast as
    in PyTorch: points (B, N, 3) with one matrix per sample take `matrices[:, None]`, (B, 1, 4, 4);
    reference points (B, 1, Q, 4) with projections (B, N_cam, 1, 4, 4) give (B, N_cam, Q, 4). Neither
    is copied to the common size. There is no perspective division.

    Args:
        points: (..., 3) or (..., 4), float32, float64, float16 or bfloat16; any strides.
        matrices: (..., 3 or 4, 3 or 4), any floating dtype. It is used as float64 for float64 points and
            as float32 otherwise, so that half-precision points keep exact matrices; sums too.

    Returns:
        the broadcast leading dimensions and 3 or 4 numbers, dtype of `points`. Gradients, of any
        order, go to points and matrices, each in its own dtype.

    Raises:
        TypeError, ValueError: naming the argument, what it is and what it must be.
    """
    name = "transform_points"
    check_dtype(name, "points", points)
    check_dtype(name, "matrices", matrices)
    if points.dim() < 1 or points.shape[-1] not in (3, 4):
        raise ValueError(f"{name}: points must be (..., 3) or (..., 4), got {tuple(points.shape)}")
    dims = points.shape[-1]
    allowed = [(3, 3), (3, 4), (4, 4)] if dims == 3 else [(4, 4), (3, 4)]
    if matrices.dim() < 2 or tuple(matrices.shape[-2:]) not in allowed:
        wanted = " or ".join(f"(..., {rows}, {columns})" for rows, columns in allowed)
        raise ValueError(
            f"{name}: matrices must be {wanted} for points of {dims} numbers, "
            f"got {tuple(matrices.shape)}"
        )
    check_same_device(name, points=points, matrices=matrices)
    try:
        batch = torch.broadcast_shapes(points.shape[:-1], matrices.shape[:-2])
    except RuntimeError as error:
        raise ValueError(
            f"{name}: points {tuple(points.shape)} and matrices {tuple(matrices.shape)} must "
            "broadcast in the dimensions before the last and before the last two"
        ) from error
    precise = torch.float64 if points.dtype == torch.float64 else torch.float32
    matrices = matrices.to(precise)
    if dims == 3:
        matrices = matrices[..., :3, :]
    return ops.transform_points(
        points.reshape((1,) * (len(batch) + 1 - points.dim()) + points.shape),
        matrices.reshape((1,) * (len(batch) + 2 - matrices.dim()) + matrices.shape),
    )


def _batch(points: Tensor, matrices: Tensor) -> torch.Size:
    return torch.broadcast_shapes(points.shape[:-1], matrices.shape[:-2])


@register_fake("transform_points")
def _(points, matrices):
    return points.new_empty(*_batch(points, matrices), matrices.shape[-2])


def _setup_context(ctx, inputs, output):
    ctx.save_for_backward(*inputs)


def _backward(ctx, grad_output):
    points, matrices = ctx.saved_tensors
    grad_points = grad_matrices = None
    if ctx.needs_input_grad[0]:
        transposed = matrices[..., : points.shape[-1]].transpose(-1, -2)
        grad_points = ops.transform_points(grad_output, transposed).sum_to_size(points.shape)
    if ctx.needs_input_grad[1]:
        grad_matrices = _matrix_gradient(grad_output, points, matrices)
    return grad_points, grad_matrices


def _matrix_gradient(grad: Tensor, points: Tensor, matrices: Tensor) -> Tensor:
    """Sum of the outer products g p^T, and of g for a translation, over the points of each matrix."""
    batch = _batch(points, matrices)
    shared = [d for d in range(len(batch)) if matrices.shape[d] == 1]
    own = [d for d in range(len(batch)) if matrices.shape[d] != 1]
    shape = [batch[d] for d in own]
    count = math.prod(batch[d] for d in shared)
    grad, points = (
        tensor.to(matrices.dtype)
        .expand(*batch, -1)
        .permute(*own, *shared, -1)
        .reshape(*shape, count, tensor.shape[-1])
        for tensor in (grad, points)
    )
    result = grad.transpose(-1, -2) @ points
    if matrices.shape[-1] > points.shape[-1]:
        result = torch.cat([result, grad.sum(-2).unsqueeze(-1)], -1)
    return result.reshape(matrices.shape)


register_autograd("transform_points", _backward, setup_context=_setup_context)
