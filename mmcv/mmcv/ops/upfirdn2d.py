"""Upsample, filter, downsample (Karras et al. 2020, "StyleGAN2")."""

from collections.abc import Sequence

import torch.nn.functional as F
from torch import Tensor
from torch.nn.modules.utils import _pair

from .checks import check_dtype, check_shape


def upfirdn2d(
    input: Tensor,
    filter: Tensor | None,
    up: int | Sequence[int] = 1,
    down: int | Sequence[int] = 1,
    padding: int | Sequence[int] = 0,
    flip_filter: bool = False,
    gain: float = 1,
    use_custom_op: bool = True,
) -> Tensor:
    """Inserts zeros, pads or crops, convolves every channel with one filter, keeps every `down`-th pixel.

    Args:
        input: (N, C, H, W) floating.
        filter: (fh, fw), or (f,) along both axes, without gradient; None: one pixel of 1.
        up, down: factors, one number or [x, y].
        padding: pixels added after upsampling: one number, [x, y] or [left, right, top, bottom]; negative: cropped.
        flip_filter: correlate instead of convolve.
        gain: factor of the result.
        use_custom_op: accepted.

    Returns:
        (N, C, (H * up + top + bottom - fh) // down + 1, likewise), dtype of `input`.
    """
    name = "upfirdn2d"
    check_dtype(name, "input", input)
    check_shape(name, "input", input, "(N, C, H, W)")
    if filter is None:
        filter = input.new_ones(1, 1)
    if filter.dim() not in (1, 2):
        raise ValueError(f"{name}: filter must be (fh, fw) or (f,), got {tuple(filter.shape)}")
    (up_x, up_y), (down_x, down_y) = _pair(up), _pair(down)
    left, right, top, bottom = _padding(padding)
    N, C, H, W = input.shape

    x = input
    if (up_x, up_y) != (1, 1):
        spaced = x.new_zeros(N, C, H, up_y, W, up_x)
        spaced[:, :, :, 0, :, 0] = x
        x = spaced.view(N, C, H * up_y, W * up_x)
    x = F.pad(x, (left, right, top, bottom))
    fh, fw = len(filter), filter.shape[-1]
    if x.shape[2] < fh or x.shape[3] < fw:
        raise ValueError(
            f"{name}: the padded input must be at least as large as the filter, {fh}x{fw}, "
            f"got {x.shape[2]}x{x.shape[3]}"
        )
    weight = filter.detach().to(x)
    if not flip_filter:
        weight = weight.flip([*range(weight.dim())])
    if weight.dim() == 1:
        weight = weight * abs(gain) ** 0.5
        x = _depthwise(x, weight.view(-1, 1) * (1 if gain >= 0 else -1), (down_y, 1))
        return _depthwise(x, weight.view(1, -1), (1, down_x))
    return _depthwise(x, weight * gain, (down_y, down_x))


def _depthwise(x: Tensor, weight: Tensor, stride: tuple[int, int]) -> Tensor:
    N, C = x.shape[:2]
    out = F.conv2d(x.flatten(0, 1).unsqueeze(1), weight[None, None], stride=stride)
    return out.view(N, C, *out.shape[2:])


def _padding(padding: int | Sequence[int]) -> list[int]:
    """[left, right, top, bottom]."""
    numbers = [padding] if isinstance(padding, int) else [int(number) for number in padding]
    if len(numbers) == 1:
        return numbers * 4
    if len(numbers) == 2:
        return [numbers[0]] * 2 + [numbers[1]] * 2
    if len(numbers) != 4:
        raise ValueError(f"upfirdn2d: padding must be 1, 2 or 4 numbers, got {padding}")
    return numbers


def _filter_size(filter: Tensor | None) -> tuple[int, int]:
    """(fw, fh)."""
    return (1, 1) if filter is None else (filter.shape[-1], len(filter))


def _padded(padding: int | Sequence[int], extra: Sequence[int]) -> list[int]:
    return [number + more for number, more in zip(_padding(padding), extra)]


def filter2d(
    input: Tensor,
    filter: Tensor | None,
    padding: int | Sequence[int] = 0,
    flip_filter: bool = False,
    gain: float = 1,
    use_custom_op: bool = True,
) -> Tensor:
    """`upfirdn2d` that keeps the size, apart from `padding`."""
    fw, fh = _filter_size(filter)
    extra = [fw // 2, (fw - 1) // 2, fh // 2, (fh - 1) // 2]
    return upfirdn2d(
        input, filter, padding=_padded(padding, extra), flip_filter=flip_filter, gain=gain
    )


def upsample2d(
    input: Tensor,
    filter: Tensor | None,
    up: int | Sequence[int] = 2,
    padding: int | Sequence[int] = 0,
    flip_filter: bool = False,
    gain: float = 1,
    use_custom_op: bool = True,
) -> Tensor:
    """`upfirdn2d` to `up` times the size, apart from `padding`; brightness stays."""
    (up_x, up_y), (fw, fh) = _pair(up), _filter_size(filter)
    extra = [(fw + up_x - 1) // 2, (fw - up_x) // 2, (fh + up_y - 1) // 2, (fh - up_y) // 2]
    return upfirdn2d(
        input,
        filter,
        up=up,
        padding=_padded(padding, extra),
        flip_filter=flip_filter,
        gain=gain * up_x * up_y,
    )


def downsample2d(
    input: Tensor,
    filter: Tensor | None,
    down: int | Sequence[int] = 2,
    padding: int | Sequence[int] = 0,
    flip_filter: bool = False,
    gain: float = 1,
    use_custom_op: bool = True,
) -> Tensor:
    """`upfirdn2d` to 1 / `down` of the size, apart from `padding`."""
    (down_x, down_y), (fw, fh) = _pair(down), _filter_size(filter)
    extra = [
        (fw - down_x + 1) // 2,
        (fw - down_x) // 2,
        (fh - down_y + 1) // 2,
        (fh - down_y) // 2,
    ]
    return upfirdn2d(
        input,
        filter,
        down=down,
        padding=_padded(padding, extra),
        flip_filter=flip_filter,
        gain=gain,
    )
