"""Leaky ReLU at a higher resolution (Karras et al. 2021, "StyleGAN3", section 3.2)."""

from collections.abc import Sequence

from torch import Tensor

from .bias_act import bias_act
from .upfirdn2d import upfirdn2d


def filtered_lrelu(
    input: Tensor,
    filter_up: Tensor | None = None,
    filter_down: Tensor | None = None,
    bias: Tensor | None = None,
    up: int = 1,
    down: int = 1,
    padding: int | Sequence[int] = 0,
    gain: float = 2**0.5,
    slope: float = 0.2,
    clamp: float | None = None,
    flip_filter: bool = False,
    use_custom_op: bool = True,
) -> Tensor:
    """Bias, upsampling, leaky ReLU with gain and bounds, downsampling.

    Args:
        input: (N, C, H, W) floating.
        filter_up, filter_down: as `filter` of `upfirdn2d`.
        bias: (C,) or None.
        up, down, padding, flip_filter: as in `upfirdn2d`; padding goes with upsampling.
        gain, slope, clamp: as gain, alpha, clamp of `bias_act` with "lrelu".
        use_custom_op: accepted.
    """
    x = bias_act(input, bias)
    x = upfirdn2d(x, filter_up, up, padding=padding, flip_filter=flip_filter, gain=up**2)
    x = bias_act(x, act="lrelu", alpha=slope, gain=gain, clamp=clamp)
    return upfirdn2d(x, filter_down, down=down, flip_filter=flip_filter)
