"""Cells that merge two feature maps (Ghiasi et al. 2019, "NAS-FPN", section 3.1)."""

import math
from abc import abstractmethod

import torch.nn.functional as F
from mmcv.cnn import ConvModule
from torch import Tensor, cat, nn


class BaseMergeCell(nn.Module):
    """Brings two maps to one size, combines them (`_binary_op`), and convolves the result.

    Args:
        fused_channels: of the combined map; also of the inputs, where they are convolved.
        out_channels: of the result, with `with_out_conv`.
        with_out_conv, out_conv_cfg, out_norm_cfg, out_conv_order: convolution of the combined map.
        with_input1_conv, with_input2_conv, input_conv_cfg, input_norm_cfg: 1x1 convolutions of the inputs.
        upsample_mode: "nearest" or "bilinear".
    """

    def __init__(
        self,
        fused_channels: int = 256,
        out_channels: int = 256,
        with_out_conv: bool = True,
        out_conv_cfg: dict = dict(groups=1, kernel_size=3, padding=1, bias=True),  # noqa: B006
        out_norm_cfg: dict | None = None,
        out_conv_order: tuple[str, ...] = ("act", "conv", "norm"),
        with_input1_conv: bool = False,
        with_input2_conv: bool = False,
        input_conv_cfg: dict | None = None,
        input_norm_cfg: dict | None = None,
        upsample_mode: str = "nearest",
    ) -> None:
        super().__init__()
        assert upsample_mode in ("nearest", "bilinear"), upsample_mode
        self.with_out_conv = with_out_conv
        self.with_input1_conv = with_input1_conv
        self.with_input2_conv = with_input2_conv
        self.upsample_mode = upsample_mode
        if with_out_conv:
            self.out_conv = ConvModule(
                fused_channels,
                out_channels,
                **out_conv_cfg,
                norm_cfg=out_norm_cfg,
                order=out_conv_order,
            )

        def input_conv(wanted: bool) -> nn.Module:
            if not wanted:
                return nn.Sequential()
            return ConvModule(
                fused_channels,
                fused_channels,
                **{"kernel_size": 1, "bias": True, **(input_conv_cfg or {})},
                norm_cfg=input_norm_cfg,
                order=("act", "conv", "norm"),
            )

        self.input1_conv = input_conv(with_input1_conv)
        self.input2_conv = input_conv(with_input2_conv)

    @abstractmethod
    def _binary_op(self, x1: Tensor, x2: Tensor) -> Tensor:
        """Combines two maps of one size."""

    def _resize(self, x: Tensor, size: tuple[int, int]) -> Tensor:
        """Larger by interpolation; smaller by max pooling, padded with zeros to a multiple of `size`."""
        h, w = x.shape[-2:]
        if (h, w) == tuple(size):
            return x
        if h < size[0] or w < size[1]:
            return F.interpolate(x, size=size, mode=self.upsample_mode)
        rows, columns = math.ceil(h / size[0]), math.ceil(w / size[1])
        missing_h, missing_w = rows * size[0] - h, columns * size[1] - w
        left, top = missing_w // 2, missing_h // 2
        x = F.pad(x, (left, missing_w - left, top, missing_h - top))
        return F.max_pool2d(x, kernel_size=(rows, columns), stride=(rows, columns))

    def forward(self, x1: Tensor, x2: Tensor, out_size: tuple[int, int] | None = None) -> Tensor:
        """x1, x2 (B, C, h, w) of any two sizes → (B, out_channels, *out_size), by default the larger size."""
        assert x1.shape[:2] == x2.shape[:2], (x1.shape, x2.shape)
        if out_size is None:
            out_size = max(tuple(x1.shape[2:]), tuple(x2.shape[2:]))
        x1 = self._resize(self.input1_conv(x1), out_size)
        x2 = self._resize(self.input2_conv(x2), out_size)
        x = self._binary_op(x1, x2)
        return self.out_conv(x) if self.with_out_conv else x


class SumCell(BaseMergeCell):
    """x1 + x2."""

    def __init__(self, in_channels: int, out_channels: int, **kwargs) -> None:
        super().__init__(in_channels, out_channels, **kwargs)

    def _binary_op(self, x1: Tensor, x2: Tensor) -> Tensor:
        return x1 + x2


class ConcatCell(BaseMergeCell):
    """x1 and x2, channel after channel."""

    def __init__(self, in_channels: int, out_channels: int, **kwargs) -> None:
        super().__init__(2 * in_channels, out_channels, **kwargs)

    def _binary_op(self, x1: Tensor, x2: Tensor) -> Tensor:
        return cat([x1, x2], dim=1)


class GlobalPoolingCell(BaseMergeCell):
    """x2 + sigmoid(mean of x2 over the image) * x1."""

    def __init__(
        self, in_channels: int | None = None, out_channels: int | None = None, **kwargs
    ) -> None:
        super().__init__(in_channels, out_channels, **kwargs)

    def _binary_op(self, x1: Tensor, x2: Tensor) -> Tensor:
        return x2 + x2.mean((2, 3), keepdim=True).sigmoid() * x1
