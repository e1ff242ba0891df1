"""Temporal self-attention: every BEV cell looks at the previous BEV and at the current one."""

import torch
from torch import Tensor, nn

from .deformable_attention import init_projection, init_sampling, level_tensors, sample


class TemporalSelfAttention(nn.Module):
    """Deformable attention over two BEV maps, averaged, with residual (BEVFormer, section 3.4).

    With a previous BEV P the maps are P and the start query q0 of the frame, in every layer.
    Without one, both are the layer's own input: the first frame of a scene has no zero map as
    history. Each sample of a batch has its own maps.
    """

    num_maps = 2

    def __init__(
        self, embed_dims: int, num_heads: int = 8, num_points: int = 4, dropout: float = 0.1
    ) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.num_points = num_points
        outputs = num_heads * self.num_maps * num_points
        self.sampling_offsets = nn.Linear(2 * embed_dims, outputs * 2)
        self.attention_weights = nn.Linear(2 * embed_dims, outputs)
        self.value_proj = nn.Linear(embed_dims, embed_dims)
        self.output_proj = nn.Linear(embed_dims, embed_dims)
        self.dropout = nn.Dropout(dropout)
        init_sampling(self.sampling_offsets, self.attention_weights, num_heads, num_points)
        init_projection(self.value_proj, self.output_proj)

    def forward(
        self,
        query: Tensor,
        pos: Tensor,
        prev_bev: Tensor | None,
        start_query: Tensor,
        has_prev: Tensor | None,
        references: Tensor,
        bev_shape: tuple[int, int],
    ) -> Tensor:
        """
        Args:
            query: (B, L, C) the layer's input, L = bev_h * bev_w.
            pos: (B, L, C) or (1, L, C) position of the cells.
            prev_bev: (B, L, C), turned into the current heading; None when no sample has one.
            start_query: (B, L, C) the query before the first layer, in the map of the current
                frame.
            has_prev: (B,) bool, which samples have a previous BEV; None means all, if `prev_bev` is
                given.
            references: (B, L, 2, 2) reference points in 0...1 (x, y), for each of the two maps.
            bev_shape: (bev_h, bev_w).

        Returns:
            (B, L, C)
        """
        B, L, _ = query.shape
        if prev_bev is None:
            maps = [query]
        else:
            maps = [prev_bev.to(query.dtype), start_query]
            if has_prev is not None:
                maps = [torch.where(has_prev.view(B, 1, 1), m, query) for m in maps]
        z = torch.cat([maps[0], query + pos], dim=-1)
        heads = (B, L, self.num_heads, self.num_maps, self.num_points)
        offsets = self.sampling_offsets(z).float().view(*heads, 2)
        # The mean over both maps is part of the weights, so that one sampling pass sums everything.
        weights = self.attention_weights(z).float().view(heads).softmax(-1) / self.num_maps
        levels = len(maps)
        shapes, starts = level_tensors((bev_shape,) * levels, query.device)
        size = shapes[0].flip(-1)
        locations = references.float().view(B, L, 1, self.num_maps, 1, 2) + offsets / size

        # The maps are the levels of one sampling pass; equal maps are one level with twice the
        # points.
        locations = locations.view(B, L, self.num_heads, levels, -1, 2)
        weights = weights.view(B, L, self.num_heads, levels, -1)
        value = torch.cat([self.value_proj(m) for m in maps], dim=1)
        value = value.view(B, levels * L, self.num_heads, -1)
        out = sample(value, shapes, starts, locations, weights)
        return query + self.dropout(self.output_proj(out))
