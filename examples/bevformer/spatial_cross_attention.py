"""Spatial cross-attention: every BEV cell looks at the cameras that see a point of its pillar."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from .deformable_attention import init_projection, init_sampling, sample


@dataclass(frozen=True)
class VisibleCells:
    """The cells that each camera sees, per sample; lists are filled up to the longest one, K.

    index (B, N_cam, K) int64: flat cell indices, no index twice in a list.
    valid (B, N_cam, K) bool: False for the filling.
    uv (B, N_cam, K, heights, 2): projected pillar points in 0...1, also those outside the image.
    num_cams (B, L, 1): number of cameras that see the cell, at least 1.
    """

    index: Tensor
    valid: Tensor
    uv: Tensor
    num_cams: Tensor

    def tensors(self) -> tuple[Tensor, ...]:
        return self.index, self.valid, self.uv, self.num_cams

    @classmethod
    def collect(cls, uv: Tensor, visible: Tensor) -> "VisibleCells":
        """From pillar points uv (B, N_cam, L, heights, 2) and visible (B, N_cam, L, heights)."""
        seen = visible.any(-1)
        count = seen.sum(-1)
        longest = max(1, int(count.max()))
        # A stable sort puts the seen cells first and keeps their order in memory.
        index = seen.to(torch.uint8).argsort(dim=-1, descending=True, stable=True)[..., :longest]
        valid = torch.arange(longest, device=index.device) < count.unsqueeze(-1)
        picked = index[..., None, None].expand(-1, -1, -1, *uv.shape[-2:])
        num_cams = seen.sum(1).clamp(min=1).unsqueeze(-1)
        return cls(index, valid, uv.gather(2, picked), num_cams)


@dataclass(frozen=True)
class CameraTokens:
    """All image features: tokens (B, N_cam, S, C), shapes (levels, 2), starts (levels,)."""

    tokens: Tensor
    shapes: Tensor
    starts: Tensor


class CameraDeformableAttention(nn.Module):
    """The part of spatial cross-attention that works inside one camera."""

    def __init__(self, embed_dims: int, num_heads: int, num_levels: int, num_points: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.num_levels = num_levels
        self.num_points = num_points
        outputs = num_heads * num_levels * num_points
        self.sampling_offsets = nn.Linear(embed_dims, outputs * 2)
        self.attention_weights = nn.Linear(embed_dims, outputs)
        self.value_proj = nn.Linear(embed_dims, embed_dims)
        init_sampling(self.sampling_offsets, self.attention_weights, num_heads, num_points)
        init_projection(self.value_proj)

    def forward(self, query: Tensor, cameras: CameraTokens, cells: VisibleCells) -> Tensor:
        """query (B, L, C) → (B, N_cam, K, C) float32: what each camera says about its cells."""
        B, L, _ = query.shape
        num_cams, K, num_heights = cells.uv.shape[1:4]
        H, levels, points = self.num_heads, self.num_levels, self.num_points

        # Offsets and weights belong to the cell; cameras gather those of their cells.
        offsets = self.sampling_offsets(query).float()
        weights = self.attention_weights(query).float().view(B, L, H, -1).softmax(-1).flatten(2)
        first_row = torch.arange(B, device=query.device).view(B, 1, 1) * L
        rows = (cells.index + first_row).flatten()
        offsets = offsets.flatten(0, 1).index_select(0, rows)
        weights = weights.flatten(0, 1).index_select(0, rows).view(B, num_cams, K, -1)
        weights = weights * cells.valid.unsqueeze(-1)

        # Point k of a head starts from height k mod num_heights.
        offsets = offsets.view(B * num_cams, K, H, levels, points // num_heights, num_heights, 2)
        size = cameras.shapes.flip(-1).view(levels, 1, 1, 2)  # (w, h) of each level
        uv = cells.uv.view(B * num_cams, K, 1, 1, 1, num_heights, 2)
        locations = (uv + offsets / size).view(B * num_cams, K, H, levels, points, 2)
        weights = weights.view(B * num_cams, K, H, levels, points)
        value = self.value_proj(cameras.tokens).flatten(0, 1)
        value = value.view(B * num_cams, value.shape[1], H, -1)
        out = sample(value, cameras.shapes, cameras.starts, locations, weights)
        return out.view(B, num_cams, K, -1)


class SpatialCrossAttention(nn.Module):
    """Deformable attention to the cameras, averaged over those that see the cell, with residual.

    BEVFormer, section 3.3. A cell that no camera sees gets the bias of the output projection.
    """

    def __init__(
        self,
        embed_dims: int,
        num_heads: int = 8,
        num_levels: int = 1,
        num_points: int = 8,
        dropout: float = 0.1,
    ) -> None:
        super().__init__()
        self.deformable_attention = CameraDeformableAttention(
            embed_dims, num_heads, num_levels, num_points
        )
        self.output_proj = nn.Linear(embed_dims, embed_dims)
        self.dropout = nn.Dropout(dropout)
        init_projection(self.output_proj)

    def forward(self, query: Tensor, cameras: CameraTokens, cells: VisibleCells) -> Tensor:
        """query (B, L, C) → (B, L, C)."""
        B, L, C = query.shape
        seen = self.deformable_attention(query, cameras, cells)
        first_row = torch.arange(B, device=query.device).view(B, 1, 1) * L
        rows = (cells.index + first_row).flatten()
        total = seen.new_zeros(B * L, C).index_add(0, rows, seen.flatten(0, 2)).view(B, L, C)
        return query + self.dropout(self.output_proj(total / cells.num_cams))
