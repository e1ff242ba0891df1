"""Sigmoid focal loss (Lin et al. 2017, "Focal Loss for Dense Object Detection", equation 5)."""

import torch
from torch import Tensor, nn

from .checks import check_dtype, check_same_device, check_shape
from .library import ops, register_autograd, register_fake


def sigmoid_focal_loss(
    input: Tensor,
    target: Tensor,
    gamma: float = 2.0,
    alpha: float = 0.25,
    weight: Tensor | None = None,
    reduction: str = "mean",
) -> Tensor:
    """-alpha (1 - p)^gamma log p for the target class, -(1 - alpha) p^gamma log(1 - p) for the others.

    Args:
        input: (N, C) logits, p = sigmoid(input); float32, float64, float16 or bfloat16.
        target: (N,) int64 classes; C, or any number outside 0...C-1, is background: no class is positive.
        weight: (C,) factors of the rows by their target class; background rows have 1.
        reduction: "none", "sum" or "mean": the sum divided by the number of rows N (0 for N = 0).

    Returns:
        (N, C) for "none", else a scalar; dtype of `input`. The gradient goes to `input`.

    Raises:
        TypeError, ValueError: naming the argument, what it is and what it must be.
    """
    name = "sigmoid_focal_loss"
    check_dtype(name, "input", input)
    check_shape(name, "input", input, "(N, C)")
    check_shape(name, "target", target, "(N,)")
    if target.dtype != torch.int64:
        raise TypeError(f"{name}: target must be int64, got {target.dtype}")
    if len(target) != len(input):
        raise ValueError(f"{name}: target must be ({len(input)},), got ({len(target)},)")
    if weight is not None:
        check_dtype(name, "weight", weight)
        if tuple(weight.shape) != (input.shape[1],):
            raise ValueError(
                f"{name}: weight must be ({input.shape[1]},), got {tuple(weight.shape)}"
            )
        check_same_device(name, input=input, weight=weight)
        weight = weight.to(input.dtype).contiguous()
    if reduction not in ("none", "sum", "mean"):
        raise ValueError(f"{name}: reduction must be none, sum or mean, got {reduction!r}")
    check_same_device(name, input=input, target=target)
    loss = ops.sigmoid_focal_loss(
        input.contiguous(), target.contiguous(), weight, float(gamma), float(alpha)
    )
    if reduction == "none":
        return loss
    return loss.sum() if reduction == "sum" else loss.sum() / max(len(input), 1)


@register_fake("sigmoid_focal_loss")
def _(input, target, weight, gamma, alpha):
    return torch.empty_like(input)


@register_fake("sigmoid_focal_loss_backward")
def _(grad_output, input, target, weight, gamma, alpha):
    return torch.empty_like(input)


def _setup_context(ctx, inputs, output):
    input, target, weight, ctx.gamma, ctx.alpha = inputs
    ctx.save_for_backward(input, target, weight)


def _backward(ctx, grad_output):
    grad_input = ops.sigmoid_focal_loss_backward(
        grad_output.contiguous(), *ctx.saved_tensors, ctx.gamma, ctx.alpha
    )
    return grad_input, None, None, None, None


register_autograd("sigmoid_focal_loss", _backward, setup_context=_setup_context)


class SigmoidFocalLossFunction:
    """`sigmoid_focal_loss` behind the interface of an autograd Function."""

    apply = staticmethod(sigmoid_focal_loss)


class SigmoidFocalLoss(nn.Module):
    """`sigmoid_focal_loss` with its parameters; `weight`, if given, is a buffer."""

    def __init__(
        self, gamma: float, alpha: float, weight: Tensor | None = None, reduction: str = "mean"
    ) -> None:
        super().__init__()
        self.gamma = gamma
        self.alpha = alpha
        self.register_buffer("weight", weight)
        self.reduction = reduction

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return sigmoid_focal_loss(
            input, target, self.gamma, self.alpha, self.weight, self.reduction
        )

    def extra_repr(self) -> str:
        return f"gamma={self.gamma}, alpha={self.alpha}, reduction={self.reduction}"
