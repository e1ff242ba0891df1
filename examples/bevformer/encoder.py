"""The BEV encoder: layers of temporal self-attention, spatial cross-attention and FFN."""

import torch
from mmcv.cnn.bricks.transformer import FFN
from torch import Tensor, nn

from autodrive.engine.transfer import on_side_stream, upload
from autodrive.geometry.projection import pillar_points, project_points

from .spatial_cross_attention import CameraTokens, SpatialCrossAttention, VisibleCells
from .temporal_self_attention import TemporalSelfAttention


class EncoderLayer(nn.Module):
    """temporal attention, norm, spatial attention, norm, FFN, norm."""

    def __init__(
        self,
        embed_dims: int,
        num_heads: int,
        num_levels: int,
        temporal_points: int,
        spatial_points: int,
        ffn_dims: int,
        dropout: float,
    ) -> None:
        super().__init__()
        self.attentions = nn.ModuleList(
            [
                TemporalSelfAttention(embed_dims, num_heads, temporal_points, dropout),
                SpatialCrossAttention(embed_dims, num_heads, num_levels, spatial_points, dropout),
            ]
        )
        self.ffns = nn.ModuleList([FFN(embed_dims, ffn_dims, ffn_drop=dropout)])
        self.norms = nn.ModuleList([nn.LayerNorm(embed_dims) for _ in range(3)])

    def forward(
        self,
        query: Tensor,
        pos: Tensor,
        prev_bev: Tensor | None,
        start_query: Tensor,
        has_prev: Tensor | None,
        references: Tensor,
        bev_shape: tuple[int, int],
        cameras: CameraTokens,
        cells: VisibleCells,
    ) -> Tensor:
        """query (B, L, C) → (B, L, C); the other arguments as in the two attentions."""
        x = self.attentions[0](query, pos, prev_bev, start_query, has_prev, references, bev_shape)
        x = self.attentions[1](self.norms[0](x), cameras, cells)
        return self.norms[2](self.ffns[0](self.norms[1](x)))


class BEVEncoder(nn.Module):
    """A BEV of one frame from its image features and the previous BEV.

    Args:
        pc_range: (x0, y0, z0, x1, y1, z1) in metres, lidar frame.
        num_heights: points of a pillar, spread over z.
        spatial_points: points per head and level in a camera, a multiple of `num_heights`.
        shift_current: shift the reference points in the current map too, not only those in the
            previous BEV. True is what the published v1 checkpoints were trained with, False the
            last state of the official code.
    """

    def __init__(
        self,
        num_layers: int,
        embed_dims: int,
        bev_h: int,
        bev_w: int,
        pc_range: tuple[float, ...],
        num_heads: int = 8,
        num_levels: int = 1,
        num_heights: int = 4,
        temporal_points: int = 4,
        spatial_points: int = 8,
        ffn_dims: int = 512,
        dropout: float = 0.1,
        shift_current: bool = True,
    ) -> None:
        super().__init__()
        if spatial_points % num_heights:
            raise ValueError(
                f"spatial_points must be a multiple of num_heights={num_heights}, "
                f"got {spatial_points}"
            )
        self.bev_shape = (bev_h, bev_w)
        self.shift_current = shift_current
        self.layers = nn.ModuleList(
            EncoderLayer(
                embed_dims,
                num_heads,
                num_levels,
                temporal_points,
                spatial_points,
                ffn_dims,
                dropout,
            )
            for _ in range(num_layers)
        )
        pillars = pillar_points(pc_range, bev_h, bev_w, num_heights)
        rows, cols = torch.meshgrid(torch.arange(bev_h), torch.arange(bev_w), indexing="ij")
        centers = torch.stack([(cols + 0.5) / bev_w, (rows + 0.5) / bev_h], dim=-1)
        self.register_buffer("pillars", pillars, persistent=False)
        self.register_buffer("centers", centers.reshape(bev_h * bev_w, 2), persistent=False)

    def forward(
        self,
        query: Tensor,
        pos: Tensor,
        cameras: CameraTokens,
        lidar2img: Tensor,
        img_shape: tuple[int, int],
        shift: Tensor,
        prev_bev: Tensor | None = None,
        has_prev: Tensor | None = None,
    ) -> Tensor:
        """
        Args:
            query: (B, L, C) start query: embedding of the cell plus that of can_bus.
            pos: (1, L, C) position of the cells.
            lidar2img: (B, N_cam, 4, 4) for images of size `img_shape` (h, w), padding included.
            shift: (B, 2) ego displacement (right, forward) in units of the grid.
            prev_bev: (B, L, C), turned into the current heading; None when no sample has one.
            has_prev: (B,) bool, which samples have a previous BEV; None means all, if `prev_bev` is
                given.

        Returns:
            (B, L, C) the BEV.
        """
        cells = self.visible_cells(lidar2img, img_shape)
        references = self.references(shift, prev_bev is not None, has_prev)
        x = query
        for layer in self.layers:
            x = layer(x, pos, prev_bev, query, has_prev, references, self.bev_shape, cameras, cells)
        return x

    def visible_cells(self, lidar2img: Tensor, img_shape: tuple[int, int]) -> VisibleCells:
        """The cells that each camera sees; does not wait for the backbone if poses are on the CPU."""
        device = self.pillars.device

        def collect() -> tuple[Tensor, ...]:
            poses = upload(lidar2img, device, torch.float32)
            return VisibleCells.collect(*project_points(self.pillars, poses, img_shape)).tensors()

        if lidar2img.device == device:
            return VisibleCells(*collect())
        return VisibleCells(*on_side_stream(device, collect))

    def references(self, shift: Tensor, any_prev: bool, has_prev: Tensor | None) -> Tensor:
        """Reference points (B, L, 2 maps, 2) of temporal self-attention."""
        current = shift if self.shift_current else torch.zeros_like(shift)
        previous = shift if any_prev else current
        if any_prev and has_prev is not None:
            previous = torch.where(has_prev.view(-1, 1), shift, current)
        shifts = torch.stack([previous, current], dim=1)
        return self.centers[None, :, None] + shifts[:, None]
