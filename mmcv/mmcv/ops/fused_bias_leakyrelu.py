"""Bias, leaky ReLU and gain in one step (Karras et al. 2020, "StyleGAN2")."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .checks import check_dtype


def fused_bias_leakyrelu(
    input: Tensor, bias: Tensor, negative_slope: float = 0.2, scale: float = 2**0.5
) -> Tensor:
    """leaky_relu(input + bias) * scale; input (B, C, ...), bias (C,)."""
    name = "fused_bias_leakyrelu"
    check_dtype(name, "input", input)
    if input.dim() < 2 or bias.shape != input.shape[1:2]:
        raise ValueError(
            f"{name}: input must be (B, C, ...) and bias (C,), got {tuple(input.shape)} and {tuple(bias.shape)}"
        )
    shape = (1, -1) + (1,) * (input.dim() - 2)
    return F.leaky_relu(input + bias.to(input.dtype).view(shape), negative_slope) * scale


class FusedBiasLeakyReLU(nn.Module):
    """`fused_bias_leakyrelu` with its bias, zeros at first.

    Args:
        num_channels: C.
    """

    def __init__(
        self, num_channels: int, negative_slope: float = 0.2, scale: float = 2**0.5
    ) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(num_channels))
        self.negative_slope = negative_slope
        self.scale = scale

    def forward(self, input: Tensor) -> Tensor:
        return fused_bias_leakyrelu(input, self.bias, self.negative_slope, self.scale)
