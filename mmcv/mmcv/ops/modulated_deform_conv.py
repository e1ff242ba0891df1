"""Modulated deformable convolution, DCNv2 (Zhu et al. 2019, equation 1), computed by torchvision's kernels."""

import math

import torch
from mmengine.registry import MODELS
from mmengine.utils import deprecated_api_warning
from torch import Tensor, nn
from torch.nn.modules.utils import _pair
from torchvision.ops import deform_conv2d

from .checks import check_dtype, check_same_device


def modulated_deform_conv2d(
    input: Tensor,
    offset: Tensor,
    mask: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: int | tuple[int, int] = 1,
    padding: int | tuple[int, int] = 0,
    dilation: int | tuple[int, int] = 1,
    groups: int = 1,
    deform_groups: int = 1,
) -> Tensor:
    """Convolution whose taps are moved by `offset` and scaled by `mask`; what they read outside the image is 0.

    Args:
        input: (B, C_in, H, W).
        offset: (B, deform_groups * 2 * kh * kw, H_out, W_out), px; for each tap (dy, dx). Its dtype is the one of
            the computation: the other tensors are cast to it.
        mask: (B, deform_groups * kh * kw, H_out, W_out).
        weight: (C_out, C_in / groups, kh, kw).
        bias: (C_out,).

    Returns:
        (B, C_out, H_out, W_out), H_out = floor((H + 2 padding - dilation (kh - 1) - 1) / stride) + 1.

    Raises:
        TypeError, ValueError: naming the argument, what it is and what it must be.
    """
    name = "modulated_deform_conv2d"
    for argument, tensor in {
        "input": input,
        "offset": offset,
        "mask": mask,
        "weight": weight,
    }.items():
        check_dtype(name, argument, tensor)
        if tensor.dim() != 4:
            raise ValueError(
                f"{name}: {argument} must have 4 dimensions, got {tuple(tensor.shape)}"
            )
    check_same_device(name, input=input, offset=offset, mask=mask, weight=weight)
    stride, padding, dilation = _pair(stride), _pair(padding), _pair(dilation)
    B, _, *size = input.shape
    out_channels, group_channels, *kernel = weight.shape
    if input.shape[1] != group_channels * groups:
        raise ValueError(
            f"{name}: input must have {group_channels * groups} channels for this weight and groups={groups}, "
            f"got {input.shape[1]}"
        )
    out_size = tuple(
        (n + 2 * p - d * (k - 1) - 1) // s + 1
        for n, p, d, k, s in zip(size, padding, dilation, kernel, stride)
    )
    if min(out_size) <= 0:
        raise ValueError(f"{name}: convolution input is too small (output would be {out_size})")
    taps = deform_groups * kernel[0] * kernel[1]
    for argument, tensor, channels in (("offset", offset, 2 * taps), ("mask", mask, taps)):
        if tuple(tensor.shape) != (B, channels, *out_size):
            raise ValueError(
                f"{name}: {argument} must be {(B, channels, *out_size)}, got {tuple(tensor.shape)}"
            )
    dtype = offset.dtype
    if B == 0:
        return input.new_empty((0, out_channels, *out_size), dtype=dtype)
    # torchvision sums in the dtype it is given; half precision sums in fp32.
    precise = torch.float64 if dtype == torch.float64 else torch.float32
    with torch.autocast(input.device.type, enabled=False):
        output = deform_conv2d(
            input.to(precise),
            offset.to(precise),
            weight.to(precise),
            None if bias is None else bias.to(precise),
            stride,
            padding,
            dilation,
            mask.to(precise),
        )
    return output.to(dtype)


class ModulatedDeformConv2dFunction:
    """`modulated_deform_conv2d` behind the interface of an autograd Function."""

    apply = staticmethod(modulated_deform_conv2d)


class ModulatedDeformConv2d(nn.Module):
    """The convolution with its weight; offset and mask are given to `forward`."""

    @deprecated_api_warning(
        {"deformable_groups": "deform_groups"}, cls_name="ModulatedDeformConv2d"
    )
    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | tuple[int, int],
        stride: int | tuple[int, int] = 1,
        padding: int | tuple[int, int] = 0,
        dilation: int | tuple[int, int] = 1,
        groups: int = 1,
        deform_groups: int = 1,
        bias: bool = True,
    ) -> None:
        super().__init__()
        self.in_channels = in_channels
        self.out_channels = out_channels
        self.kernel_size = _pair(kernel_size)
        self.stride = _pair(stride)
        self.padding = _pair(padding)
        self.dilation = _pair(dilation)
        self.groups = groups
        self.deform_groups = deform_groups
        # What generic code about convolutions asks for.
        self.transposed = False
        self.output_padding = (0,)
        self.weight = nn.Parameter(
            torch.empty(out_channels, in_channels // groups, *self.kernel_size)
        )
        self.bias = nn.Parameter(torch.empty(out_channels)) if bias else None
        self.init_weights()

    def init_weights(self) -> None:
        bound = 1 / math.sqrt(self.in_channels * self.kernel_size[0] * self.kernel_size[1])
        nn.init.uniform_(self.weight, -bound, bound)
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def forward(self, x: Tensor, offset: Tensor, mask: Tensor) -> Tensor:
        return modulated_deform_conv2d(
            x,
            offset,
            mask,
            self.weight,
            self.bias,
            self.stride,
            self.padding,
            self.dilation,
            self.groups,
            self.deform_groups,
        )


@MODELS.register_module("DCNv2")
class ModulatedDeformConv2dPack(ModulatedDeformConv2d):
    """With the convolution `conv_offset` that predicts offset and mask, both 0 and 1/2 at the start."""

    _version = 2

    def __init__(self, *args, **kwargs) -> None:
        super().__init__(*args, **kwargs)
        self.conv_offset = nn.Conv2d(
            self.in_channels,
            self.deform_groups * 3 * self.kernel_size[0] * self.kernel_size[1],
            self.kernel_size,
            self.stride,
            self.padding,
            self.dilation,
        )
        self.init_weights()

    def init_weights(self) -> None:
        super().init_weights()
        if hasattr(self, "conv_offset"):
            nn.init.zeros_(self.conv_offset.weight)
            nn.init.zeros_(self.conv_offset.bias)

    def forward(self, x: Tensor) -> Tensor:
        first, second, mask = self.conv_offset(x).chunk(3, dim=1)
        return super().forward(x, torch.cat([first, second], dim=1), mask.sigmoid())

    def _load_from_state_dict(self, state_dict, prefix, local_metadata, *args) -> None:
        # Before version 2 the offset convolution stood beside this one, as <name>_offset.
        if (local_metadata.get("version") or 1) < 2:
            for part in ("weight", "bias"):
                new, old = f"{prefix}conv_offset.{part}", f"{prefix[:-1]}_offset.{part}"
                if new not in state_dict and old in state_dict:
                    state_dict[new] = state_dict.pop(old)
        super()._load_from_state_dict(state_dict, prefix, local_metadata, *args)
