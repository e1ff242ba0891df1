"""Multi-scale deformable attention (Zhu et al. 2021, "Deformable DETR", equation 3)."""

import math
import warnings
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from mmengine.model import BaseModule
from mmengine.registry import MODELS
from mmengine.utils import deprecated_api_warning
from torch import Tensor, nn

from .checks import can_read, check_dtype, check_same_device, check_shape
from .fixed_point import fixed_point_scale
from .library import ops, register_autograd, register_fake


def ms_deform_attn(
    value: Tensor,
    value_spatial_shapes: Tensor,
    value_level_start_index: Tensor,
    sampling_locations: Tensor,
    attention_weights: Tensor,
) -> Tensor:
    """Weighted sum of bilinear samples from several feature maps.

    out[b, q, h, :] = sum over l, p of weights[b, q, h, l, p] * bilinear(value of level l, head h; location), where a
    location (x, y) addresses pixel (x * W - 0.5, y * H - 0.5) and what lies outside a map is 0. Sums are in float32
    (float64 for float64 values); locations that are NaN, infinite or far outside give 0.

    Args:
        value: (B, S, H, C) float32, float64, float16 or bfloat16; the maps of all levels, row after row.
        value_spatial_shapes: (L, 2) integers, height and width of each level.
        value_level_start_index: (L,) integers, the first row of each level.
        sampling_locations: (B, Q, H, L, P, 2) as (x, y), 0...1 inside; any floating dtype.
        attention_weights: (B, Q, H, L, P), any floating dtype.

    Returns:
        (B, Q, H * C) in the dtype of `value`. Gradients go to value, locations and weights, each in its own dtype.
        With `torch.use_deterministic_algorithms(True)` the GPU sums the gradient of `value` in fixed point, which
        gives the same bits every time.

    Raises:
        TypeError, ValueError: naming the argument, what it is and what it must be.
    """
    name = "ms_deform_attn"
    check_dtype(name, "value", value)
    check_dtype(name, "sampling_locations", sampling_locations)
    check_dtype(name, "attention_weights", attention_weights)
    check_shape(name, "value", value, "(B, N, H, C)")
    check_shape(name, "sampling_locations", sampling_locations, "(B, Q, H, L, P, 2)")
    check_shape(name, "attention_weights", attention_weights, "(B, Q, H, L, P)")
    check_shape(name, "value_spatial_shapes", value_spatial_shapes, "(L, 2)")
    check_shape(name, "value_level_start_index", value_level_start_index, "(L,)")
    B, S, H, _ = value.shape
    Q, L, P = sampling_locations.shape[1], sampling_locations.shape[3], sampling_locations.shape[4]
    wanted = {
        "sampling_locations": (sampling_locations, (B, Q, H, L, P, 2)),
        "attention_weights": (attention_weights, (B, Q, H, L, P)),
        "value_spatial_shapes": (value_spatial_shapes, (L, 2)),
        "value_level_start_index": (value_level_start_index, (L,)),
    }
    for argument, (tensor, shape) in wanted.items():
        if tuple(tensor.shape) != shape:
            raise ValueError(f"{name}: {argument} must be {shape}, got {tuple(tensor.shape)}")
    check_same_device(
        name,
        value=value,
        sampling_locations=sampling_locations,
        attention_weights=attention_weights,
    )
    if can_read(value_spatial_shapes):
        _check_levels(value_spatial_shapes, value_level_start_index, S)
    precise = torch.float64 if value.dtype == torch.float64 else torch.float32
    return ops.ms_deform_attn(
        value.contiguous(),
        value_spatial_shapes.to(value.device, torch.int64).contiguous(),
        value_level_start_index.to(value.device, torch.int64).contiguous(),
        sampling_locations.to(precise).contiguous(),
        attention_weights.to(precise).contiguous(),
    )


def _check_levels(spatial_shapes: Tensor, level_start: Tensor, num_values: int) -> None:
    rows = [h * w for h, w in spatial_shapes.tolist()]
    if sum(rows) != num_values:
        raise ValueError(
            f"ms_deform_attn: the areas of value_spatial_shapes must add up to the {num_values} rows of value, "
            f"got {sum(rows)}"
        )
    starts = [sum(rows[:level]) for level in range(len(rows))]
    if can_read(level_start) and level_start.tolist() != starts:
        raise ValueError(
            f"ms_deform_attn: value_level_start_index must be {starts}, got {level_start.tolist()}"
        )


@register_fake("ms_deform_attn")
def _(value, spatial_shapes, level_start, locations, weights):
    B, _, H, C = value.shape
    return value.new_empty(B, locations.shape[1], H * C)


@register_fake("ms_deform_attn_backward")
def _(grad_output, value, spatial_shapes, level_start, locations, weights, fixed_point_scale=None):
    precise = torch.float64 if value.dtype == torch.float64 else torch.float32
    dtype = precise if fixed_point_scale is None else torch.int64
    return (
        torch.empty(value.shape, dtype=dtype, device=value.device),
        torch.empty(locations.shape, dtype=precise, device=value.device),
        torch.empty(weights.shape, dtype=precise, device=value.device),
    )


def _setup_context(ctx, inputs, output):
    ctx.save_for_backward(*inputs)


def _backward(ctx, grad_output):
    value, shapes, starts, locations, weights = ctx.saved_tensors
    scale = fixed_point_scale(weights.shape[1:].numel(), grad_output, weights)
    grad_value, grad_locations, grad_weights = ops.ms_deform_attn_backward(
        grad_output.contiguous(), value, shapes, starts, locations, weights, scale
    )
    if scale is not None:
        grad_value = grad_value.double() / scale
    return grad_value.to(value.dtype), None, None, grad_locations, grad_weights


register_autograd("ms_deform_attn", _backward, setup_context=_setup_context)


class MultiScaleDeformableAttnFunction:
    """`ms_deform_attn` behind the interface of an autograd Function, as model repositories call it."""

    @staticmethod
    def apply(
        value: Tensor,
        value_spatial_shapes: Tensor,
        value_level_start_index: Tensor,
        sampling_locations: Tensor,
        attention_weights: Tensor,
        im2col_step: int = 64,
    ) -> Tensor:
        """As `ms_deform_attn`; `im2col_step` is accepted and has no effect."""
        return ms_deform_attn(
            value,
            value_spatial_shapes,
            value_level_start_index,
            sampling_locations.to(value.dtype),
            attention_weights.to(value.dtype),
        )


def multi_scale_deformable_attn_pytorch(
    value: Tensor,
    value_spatial_shapes: Tensor | Sequence[tuple[int, int]],
    sampling_locations: Tensor,
    attention_weights: Tensor,
) -> Tensor:
    """The same sum from `grid_sample`: slower, for any device, differentiable twice. Arguments as `ms_deform_attn`."""
    B, _, H, C = value.shape
    _, Q, _, _, P, _ = sampling_locations.shape
    shapes = [(int(h), int(w)) for h, w in value_spatial_shapes]
    levels = value.split([h * w for h, w in shapes], dim=1)
    output = value.new_zeros(B * H, C, Q)
    for level, (h, w) in enumerate(shapes):
        image = levels[level].permute(0, 2, 3, 1).reshape(B * H, C, h, w)
        grid = 2 * sampling_locations[:, :, :, level].transpose(1, 2).reshape(B * H, Q, P, 2) - 1
        sampled = F.grid_sample(image, grid, align_corners=False)
        weight = attention_weights[:, :, :, level].transpose(1, 2).reshape(B * H, 1, Q, P)
        output = output + (sampled * weight).sum(-1)
    return output.view(B, H * C, Q).transpose(1, 2).contiguous()


@MODELS.register_module()
class MultiScaleDeformableAttention(BaseModule):
    """Deformable attention with its projections, residual and dropout.

    Args:
        embed_dims: channels of queries, a multiple of `num_heads`.
        num_heads, num_levels, num_points: H, L, P of `ms_deform_attn`.
        im2col_step: accepted, without effect.
        dropout: of the output, before the residual is added.
        batch_first: (B, len, E) instead of (len, B, E).
        value_proj_ratio: channels of the values, as a multiple of `embed_dims`.
    """

    def __init__(
        self,
        embed_dims: int = 256,
        num_heads: int = 8,
        num_levels: int = 4,
        num_points: int = 4,
        im2col_step: int = 64,
        dropout: float = 0.1,
        batch_first: bool = False,
        norm_cfg: dict | None = None,
        init_cfg: dict | None = None,
        value_proj_ratio: float = 1.0,
    ) -> None:
        super().__init__(init_cfg)
        if embed_dims % num_heads:
            raise ValueError(
                f"embed_dims must be a multiple of num_heads={num_heads}, got {embed_dims}"
            )
        head_dims = embed_dims // num_heads
        if head_dims & (head_dims - 1):
            warnings.warn(
                f"MultiScaleDeformableAttention: {head_dims} channels a head is no power of two, which is slower",
                stacklevel=2,
            )
        self.norm_cfg = norm_cfg
        self.embed_dims = embed_dims
        self.num_heads = num_heads
        self.num_levels = num_levels
        self.num_points = num_points
        self.im2col_step = im2col_step
        self.batch_first = batch_first
        self.dropout = nn.Dropout(dropout)
        samples = num_heads * num_levels * num_points
        value_dims = int(embed_dims * value_proj_ratio)
        self.sampling_offsets = nn.Linear(embed_dims, samples * 2)
        self.attention_weights = nn.Linear(embed_dims, samples)
        self.value_proj = nn.Linear(embed_dims, value_dims)
        self.output_proj = nn.Linear(value_dims, embed_dims)
        self.init_weights()

    def init_weights(self) -> None:
        """Heads look in different directions, points one pixel further each, all with the same weight."""
        nn.init.zeros_(self.sampling_offsets.weight)
        nn.init.zeros_(self.attention_weights.weight)
        nn.init.zeros_(self.attention_weights.bias)
        angle = torch.arange(self.num_heads) * (2 * math.pi / self.num_heads)
        direction = torch.stack([angle.cos(), angle.sin()], -1)
        direction = direction / direction.abs().amax(-1, keepdim=True)
        steps = torch.arange(1, self.num_points + 1).view(1, 1, -1, 1)
        bias = direction.view(self.num_heads, 1, 1, 2) * steps
        with torch.no_grad():
            self.sampling_offsets.bias.copy_(bias.expand(-1, self.num_levels, -1, -1).reshape(-1))
        for projection in (self.value_proj, self.output_proj):
            nn.init.xavier_uniform_(projection.weight)
            nn.init.zeros_(projection.bias)
        self._is_init = True

    @deprecated_api_warning({"residual": "identity"}, cls_name="MultiScaleDeformableAttention")
    def forward(
        self,
        query: Tensor,
        key: Tensor | None = None,
        value: Tensor | None = None,
        identity: Tensor | None = None,
        query_pos: Tensor | None = None,
        key_padding_mask: Tensor | None = None,
        reference_points: Tensor | None = None,
        spatial_shapes: Tensor | None = None,
        level_start_index: Tensor | None = None,
        **kwargs,
    ) -> Tensor:
        """
        Args:
            query: (Q, B, E), or (B, Q, E) with `batch_first`.
            key: ignored.
            value: (S, B, E) or (B, S, E); the query by default.
            identity: what the output is added to; the query by default.
            query_pos: added to the query, same shape.
            key_padding_mask: (B, S) bool, True where a value does not count.
            reference_points: (B, Q, L, 2) as (x, y), or (B, Q, L, 4) as (cx, cy, w, h), 0...1.
            spatial_shapes, level_start_index: as in `ms_deform_attn`.

        Returns:
            the shape of `query`.
        """
        value = query if value is None else value
        identity = query if identity is None else identity
        if query_pos is not None:
            query = query + query_pos
        if not self.batch_first:
            query, value = query.transpose(0, 1), value.transpose(0, 1)
        B, Q, _ = query.shape
        value = self.value_proj(value)
        if key_padding_mask is not None:
            value = value.masked_fill(key_padding_mask[..., None], 0.0)
        value = value.view(B, value.shape[1], self.num_heads, -1)
        heads = (B, Q, self.num_heads, self.num_levels, self.num_points)
        offsets = self.sampling_offsets(query).view(*heads, 2)
        weights = self.attention_weights(query).view(B, Q, self.num_heads, -1).softmax(-1)
        weights = weights.view(heads)
        last = reference_points.shape[-1]
        if last == 2:
            size = spatial_shapes.flip(-1).to(offsets)[:, None]
            locations = reference_points[:, :, None, :, None] + offsets / size
        elif last == 4:
            center, extent = reference_points[:, :, None, :, None].split(2, dim=-1)
            locations = center + offsets / self.num_points * extent * 0.5
        else:
            raise ValueError(
                f"reference_points must be (B, Q, L, 2) or (B, Q, L, 4), got {tuple(reference_points.shape)}"
            )
        output = ms_deform_attn(value, spatial_shapes, level_start_index, locations, weights)
        output = self.output_proj(output)
        if not self.batch_first:
            output = output.transpose(0, 1)
        return self.dropout(output) + identity
