"""Batch normalisation over all processes (Peng et al. 2018, "MegDet", section 3.3)."""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from mmengine.registry import MODELS
from torch import Tensor, nn
from torch.autograd import Function
from torch.autograd.function import once_differentiable


class SyncBatchNormFunction(Function):
    """Normalises with the statistics of a group of processes; see `SyncBatchNorm`."""

    @staticmethod
    def forward(
        ctx,
        input: Tensor,
        running_mean: Tensor,
        running_var: Tensor,
        weight: Tensor,
        bias: Tensor,
        momentum: float,
        eps: float,
        group,
        group_size: int,
        stats_mode: str,
    ) -> Tensor:
        x = input.float().flatten(2) if input.dim() > 2 else input.float().unsqueeze(-1)
        batch, channels, spatial = x.shape
        local = batch * spatial
        # The share of this process in the statistics, and of all of them together.
        share = float(batch) if stats_mode == "N" else 1.0
        mean = x.mean((0, 2)) if local else x.new_zeros(channels)
        sums = torch.cat([mean * share * (local > 0), mean.new_tensor([share, batch])])
        _all_reduce(sums, group, group_size)
        total = sums[channels].clamp(min=1)
        mean = sums[:channels] / total
        centred = x - mean.view(1, -1, 1)
        variance = centred.square().mean((0, 2)) if local else x.new_zeros(channels)
        variance = variance * share
        _all_reduce(variance, group, group_size)
        variance = variance / total

        if momentum > 0:
            # Nothing is learned from a batch without samples.
            rate = momentum * sums[channels + 1].clamp(max=1)
            count = local * group_size
            unbiased = variance * (count / (count - 1)) if count > 1 else variance
            running_mean.lerp_(mean.to(running_mean.dtype), rate.to(running_mean.dtype))
            running_var.lerp_(unbiased.to(running_var.dtype), rate.to(running_var.dtype))

        std = (variance + eps).sqrt()
        normal = centred / std.view(1, -1, 1)
        output = normal * weight.float().view(1, -1, 1) + bias.float().view(1, -1, 1)
        ctx.save_for_backward(normal, weight, std)
        ctx.group, ctx.group_size = group, group_size
        return output.view(input.shape).to(input.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_output: Tensor):
        normal, weight, std = ctx.saved_tensors
        grad = grad_output.float().reshape(normal.shape)
        grads = torch.stack([(grad * normal).sum((0, 2)), grad.sum((0, 2))])
        _all_reduce(grads, ctx.group, ctx.group_size)
        grad_weight, grad_bias = grads / ctx.group_size
        local = max(1, normal.shape[0] * normal.shape[2])
        slope = normal * grad_weight.view(1, -1, 1) + grad_bias.view(1, -1, 1)
        grad_input = (weight.float() / std).view(1, -1, 1) * (grad - slope / local)
        return (
            grad_input.view(grad_output.shape).to(grad_output.dtype),
            None,
            None,
            grad_weight.to(weight.dtype),
            grad_bias.to(weight.dtype),
            *[None] * 5,
        )


def _all_reduce(tensor: Tensor, group, group_size: int) -> None:
    if group_size > 1:
        dist.all_reduce(tensor, group=group)


@MODELS.register_module(name="MMSyncBN")
class SyncBatchNorm(nn.Module):
    """Batch normalisation with the statistics of all processes of a group.

    The gradients of weight and bias are averages over the group. Without an initialised process group it works alone.

    Args:
        num_features: C of the input (B, C, ...).
        eps, momentum: as in `torch.nn.BatchNorm2d`.
        affine, track_running_stats: must be True.
        group: process group, None for all processes.
        stats_mode: "default" weighs all processes alike, "N" by their batch sizes, which may be 0.
    """

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        group=None,
        stats_mode: str = "default",
    ) -> None:
        super().__init__()
        for argument, given in {
            "affine": affine,
            "track_running_stats": track_running_stats,
        }.items():
            if not given:
                raise ValueError(f"SyncBatchNorm: {argument} must be True, got {given}")
        if stats_mode not in ("default", "N"):
            raise ValueError(f"SyncBatchNorm: stats_mode must be default or N, got {stats_mode}")
        self.num_features = num_features
        self.eps = eps
        self.momentum = momentum
        self.affine = affine
        self.track_running_stats = track_running_stats
        joined = dist.is_available() and dist.is_initialized()
        self.group = dist.group.WORLD if group is None and joined else group
        self.group_size = dist.get_world_size(self.group) if joined else 1
        self.stats_mode = stats_mode
        self.weight = nn.Parameter(torch.empty(num_features))
        self.bias = nn.Parameter(torch.empty(num_features))
        self.register_buffer("running_mean", torch.zeros(num_features))
        self.register_buffer("running_var", torch.ones(num_features))
        self.register_buffer("num_batches_tracked", torch.tensor(0))
        self.reset_parameters()

    def reset_running_stats(self) -> None:
        self.running_mean.zero_()
        self.running_var.fill_(1)
        self.num_batches_tracked.zero_()

    def reset_parameters(self) -> None:
        self.reset_running_stats()
        nn.init.uniform_(self.weight)
        nn.init.zeros_(self.bias)

    def forward(self, input: Tensor) -> Tensor:
        if input.dim() < 2 or input.shape[1] != self.num_features:
            raise ValueError(
                f"SyncBatchNorm: input must be (B, {self.num_features}, ...), got {tuple(input.shape)}"
            )
        if not self.training:
            return F.batch_norm(
                input, self.running_mean, self.running_var, self.weight, self.bias, eps=self.eps
            )
        self.num_batches_tracked += 1
        momentum = self.momentum
        if momentum is None:
            momentum = 1.0 / float(self.num_batches_tracked)
        return SyncBatchNormFunction.apply(
            input,
            self.running_mean,
            self.running_var,
            self.weight,
            self.bias,
            momentum,
            self.eps,
            self.group,
            self.group_size,
            self.stats_mode,
        )

    def extra_repr(self) -> str:
        return (
            f"{self.num_features}, eps={self.eps}, momentum={self.momentum}, affine={self.affine}, "
            f"track_running_stats={self.track_running_stats}, group_size={self.group_size}, "
            f"stats_mode={self.stats_mode}"
        )
