"""RoIAlign (He et al. 2017, "Mask R-CNN", section 3)."""

import torch
from mmengine.utils import deprecated_api_warning
from torch import Tensor, nn
from torch.nn.modules.utils import _pair
from torchvision.ops import roi_align as torchvision_roi_align

from .checks import can_read, check_dtype, check_same_device, check_shape
from .fixed_point import fixed_point_scale
from .library import ops, register_autograd, register_fake


def roi_align(
    input: Tensor,
    rois: Tensor,
    output_size: int | tuple[int, int],
    spatial_scale: float = 1.0,
    sampling_ratio: int = 0,
    pool_mode: str = "avg",
    aligned: bool = True,
) -> Tensor:
    """Averages, or takes the largest, of a regular grid of bilinear samples in each bin of each box.

    Args:
        input: (B, C, H, W) float32, float64, float16 or bfloat16.
        rois: (K, 5) as (index in the batch, x1, y1, x2, y2); any floating dtype.
        output_size: (ph, pw), or one number for both.
        spatial_scale: input pixels per unit of the boxes.
        sampling_ratio: samples per bin and axis; 0: ceil(size of the bin).
        pool_mode: "avg" or "max".
        aligned: pixel centres lie at integers plus 1/2; otherwise at integers, and boxes are at least
            one pixel wide and high.

    Returns:
        (K, C, ph, pw), dtype of `input`; sums are in float32 (float64 for float64). Boxes of negative size,
        of no size with sampling_ratio 0, with NaN, or with corners beyond 2^24 pixels give 0. The gradient
        goes to `input`, for "max" to the first of the largest samples; samples outside the image are 0 and
        pass none on. With `torch.use_deterministic_algorithms(True)` the GPU sums it in fixed point.

    Raises:
        TypeError, ValueError: naming the argument, what it is and what it must be; also for an index outside
            the batch (on the GPU only if MMCV_CHECK_GPU_VALUES=1, otherwise such boxes give 0).
    """
    name = "roi_align"
    check_dtype(name, "input", input)
    check_dtype(name, "rois", rois)
    check_shape(name, "input", input, "(B, C, H, W)")
    check_shape(name, "rois", rois, "(K, 5)")
    check_same_device(name, input=input, rois=rois)
    if pool_mode not in ("avg", "max"):
        raise ValueError(f"{name}: pool_mode must be avg or max, got {pool_mode!r}")
    size = _pair(output_size)
    if len(size) != 2 or min(size) < 1:
        raise ValueError(f"{name}: output_size must be 1 or 2 positive numbers, got {output_size}")
    if can_read(rois) and len(rois):
        index = rois.detach()[:, 0]
        if not ((index >= 0) & (index < len(input))).all():
            raise ValueError(
                f"{name}: the first column of rois must be an index in the batch of {len(input)}, "
                f"got {index.min().item():g} to {index.max().item():g}"
            )
    precise = torch.float64 if input.dtype == torch.float64 else torch.float32
    return ops.roi_align(
        input.contiguous(),
        rois.detach().to(precise).contiguous(),
        *size,
        float(spatial_scale),
        int(sampling_ratio),
        pool_mode == "max",
        aligned,
    )


@register_fake("roi_align")
def _(input, rois, bins_y, bins_x, spatial_scale, sampling_ratio, largest, aligned):
    return input.new_empty(rois.shape[0], input.shape[1], bins_y, bins_x)


@register_fake("roi_align_backward")
def _(
    grad_output,
    input,
    rois,
    spatial_scale,
    sampling_ratio,
    largest,
    aligned,
    fixed_point_scale=None,
):
    precise = torch.float64 if grad_output.dtype == torch.float64 else torch.float32
    dtype = precise if fixed_point_scale is None else torch.int64
    return grad_output.new_empty(input.shape, dtype=dtype)


def _setup_context(ctx, inputs, output):
    input, rois, _, _, *ctx.options = inputs
    largest = inputs[6]
    # Averaging needs the shape of the input only: keep no memory for its numbers.
    ctx.save_for_backward(input if largest else input.new_empty(()).expand(input.shape), rois)


def _backward(ctx, grad_output):
    input, rois = ctx.saved_tensors
    scale = fixed_point_scale(rois.shape[0] * grad_output.shape[2:].numel(), grad_output)
    grad_input = ops.roi_align_backward(grad_output.contiguous(), input, rois, *ctx.options, scale)
    if scale is not None:
        grad_input = grad_input.double() / scale
    return grad_input.to(input.dtype), *[None] * 7


register_autograd("roi_align", _backward, setup_context=_setup_context)


class RoIAlignFunction:
    """`roi_align` behind the interface of an autograd Function."""

    apply = staticmethod(roi_align)


class RoIAlign(nn.Module):
    """`roi_align` with its parameters.

    Args:
        output_size, spatial_scale, sampling_ratio, pool_mode, aligned: as in `roi_align`.
        use_torchvision: call torchvision's function instead, which always averages.
    """

    @deprecated_api_warning(
        {"out_size": "output_size", "sample_num": "sampling_ratio"}, cls_name="RoIAlign"
    )
    def __init__(
        self,
        output_size: int | tuple[int, int],
        spatial_scale: float = 1.0,
        sampling_ratio: int = 0,
        pool_mode: str = "avg",
        aligned: bool = True,
        use_torchvision: bool = False,
    ) -> None:
        super().__init__()
        self.output_size = _pair(output_size)
        self.spatial_scale = float(spatial_scale)
        self.sampling_ratio = int(sampling_ratio)
        self.pool_mode = pool_mode
        self.aligned = aligned
        self.use_torchvision = use_torchvision

    def forward(self, input: Tensor, rois: Tensor) -> Tensor:
        if self.use_torchvision:
            return torchvision_roi_align(
                input,
                rois,
                self.output_size,
                self.spatial_scale,
                self.sampling_ratio,
                self.aligned,
            )
        return roi_align(
            input,
            rois,
            self.output_size,
            self.spatial_scale,
            self.sampling_ratio,
            self.pool_mode,
            self.aligned,
        )

    def extra_repr(self) -> str:
        return (
            f"output_size={self.output_size}, spatial_scale={self.spatial_scale}, "
            f"sampling_ratio={self.sampling_ratio}, pool_mode={self.pool_mode}, "
            f"aligned={self.aligned}, use_torchvision={self.use_torchvision}"
        )
