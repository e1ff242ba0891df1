"""Criss-cross attention (Huang et al. 2019, "CCNet", section 3.2)."""

import torch
from mmcv.cnn import Scale
from mmengine.registry import MODELS
from torch import Tensor, nn


@MODELS.register_module()
class CrissCrossAttention(nn.Module):
    """Every pixel attends to those of its row and its column; a learned scale, 0 at first, and a residual.

    Args:
        in_channels: C, at least 8.
    """

    def __init__(self, in_channels: int) -> None:
        super().__init__()
        self.in_channels = in_channels
        self.query_conv = nn.Conv2d(in_channels, in_channels // 8, 1)
        self.key_conv = nn.Conv2d(in_channels, in_channels // 8, 1)
        self.value_conv = nn.Conv2d(in_channels, in_channels, 1)
        self.gamma = Scale(0.0)

    def forward(self, x: Tensor) -> Tensor:
        """x (B, C, H, W), the result has the same shape."""
        query, key, value = self.query_conv(x), self.key_conv(x), self.value_conv(x)
        H = x.shape[2]
        in_column = torch.einsum("bchw,bciw->bhwi", query, key)
        # The pixel itself counts once: in its row.
        itself = torch.eye(H, dtype=torch.bool, device=x.device).view(1, H, 1, H)
        in_column = in_column.masked_fill(itself, -torch.inf)
        in_row = torch.einsum("bchw,bchj->bhwj", query, key)
        attention = torch.cat([in_column, in_row], dim=-1).softmax(-1)
        out = torch.einsum("bciw,bhwi->bchw", value, attention[..., :H])
        out = out + torch.einsum("bchj,bhwj->bchw", value, attention[..., H:])
        return (self.gamma(out) + x).contiguous()

    def extra_repr(self) -> str:
        return f"in_channels={self.in_channels}"
