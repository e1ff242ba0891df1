"""From image features to the BEV, and from the BEV to object states."""

from collections import OrderedDict

import numpy as np
import torch
from torch import Tensor, nn

from autodrive.data.can_bus import CAN_BUS_SIZE, HEADING_DEGREES
from autodrive.engine.transfer import upload

from .decoder import Decoder
from .deformable_attention import init_projection, level_tensors
from .ego_motion import ego_shift, rotate_bev
from .encoder import BEVEncoder
from .spatial_cross_attention import CameraTokens

# Rows of `level_embeds`, also when fewer levels are used; part of the published checkpoints.
NUM_LEVEL_EMBEDS = 4


class PerceptionTransformer(nn.Module):
    """Encoder and decoder with the embeddings of cameras, levels and the vehicle's motion.

    Args:
        rotate_center: (x, y) in cells, around which the previous BEV is turned. The published
            checkpoints were trained with (100, 100) for every grid, which is the middle of base's
            200x200 only; None is the middle of the grid.
    """

    def __init__(
        self,
        encoder: BEVEncoder,
        decoder: Decoder,
        embed_dims: int,
        pc_range: tuple[float, ...],
        num_cams: int = 6,
        rotate_center: tuple[float, float] | None = (100.0, 100.0),
    ) -> None:
        super().__init__()
        self.pc_range = tuple(pc_range)
        self.bev_shape = encoder.bev_shape
        bev_h, bev_w = self.bev_shape
        self.rotate_center = rotate_center or (bev_w / 2, bev_h / 2)
        self.encoder = encoder
        self.decoder = decoder
        self.level_embeds = nn.Parameter(torch.empty(NUM_LEVEL_EMBEDS, embed_dims))
        self.cams_embeds = nn.Parameter(torch.empty(num_cams, embed_dims))
        self.reference_points = nn.Linear(embed_dims, 3)
        self.can_bus_mlp = nn.Sequential(
            OrderedDict(
                [
                    ("0", nn.Linear(CAN_BUS_SIZE, embed_dims // 2)),
                    ("1", nn.ReLU()),
                    ("2", nn.Linear(embed_dims // 2, embed_dims)),
                    ("3", nn.ReLU()),
                    ("norm", nn.LayerNorm(embed_dims)),
                ]
            )
        )
        self.reset_parameters()

    def reset_parameters(self) -> None:
        # The deformable attentions have initialised themselves; their sampling layers must stay as
        # they are.
        for name, parameter in self.named_parameters():
            sampling = "sampling_offsets" in name or "attention_weights" in name
            if parameter.dim() > 1 and not sampling:
                nn.init.xavier_uniform_(parameter)
        nn.init.normal_(self.level_embeds)
        nn.init.normal_(self.cams_embeds)
        init_projection(self.reference_points)

    def camera_tokens(self, features: list[Tensor]) -> CameraTokens:
        """Features per level (B, N_cam, C, h, w), with embeddings of camera and level added."""
        tokens = [
            level.flatten(3).transpose(2, 3)
            + self.cams_embeds[None, :, None]
            + self.level_embeds[i]
            for i, level in enumerate(features)
        ]
        shapes = tuple(tuple(level.shape[-2:]) for level in features)
        return CameraTokens(torch.cat(tokens, dim=2), *level_tensors(shapes, tokens[0].device))

    def embed_can_bus(self, can_bus: np.ndarray) -> Tensor:
        """can_bus (B, 18) → (B, C) in float32: its degrees and metres do not survive bf16."""
        device = self.level_embeds.device
        with torch.autocast(device.type, enabled=False):
            return self.can_bus_mlp(upload(can_bus, device, torch.float32))

    def encode(
        self,
        features: list[Tensor],
        queries: Tensor,
        pos: Tensor,
        lidar2img: Tensor,
        img_shape: tuple[int, int],
        can_bus: np.ndarray,
        prev_bev: Tensor | None = None,
        has_prev: np.ndarray | None = None,
    ) -> Tensor:
        """
        Args:
            features: per level (B, N_cam, C, h, w).
            queries: (L, C) embedding of the BEV cells.
            pos: (1, L, C).
            lidar2img: (B, N_cam, 4, 4) for images of size `img_shape` (h, w), padding included.
            can_bus: (B, 18) float64, relative to the previous frame.
            prev_bev: (B, L, C) the BEV of the previous frame, as it was computed.
            has_prev: (B,) bool, which samples have a previous BEV; None means all, if `prev_bev` is
                given.

        Returns:
            (B, L, C) the BEV.
        """
        device = queries.device
        shift = ego_shift(can_bus, self.pc_range, *self.bev_shape)
        shift = upload(shift, device, torch.float32)
        mask = None
        if prev_bev is not None and has_prev is not None:
            if not has_prev.any():
                prev_bev = None
            elif not has_prev.all():
                mask = upload(has_prev, device, torch.bool)
        if prev_bev is not None:
            prev_bev = rotate_bev(
                prev_bev, can_bus[:, HEADING_DEGREES], self.rotate_center, self.bev_shape
            )
        start = queries.unsqueeze(0) + self.embed_can_bus(can_bus).unsqueeze(1)
        cameras = self.camera_tokens(features)
        return self.encoder(start, pos, cameras, lidar2img, img_shape, shift, prev_bev, mask)

    def decode(
        self, bev: Tensor, queries: Tensor, reg_branches: nn.ModuleList
    ) -> tuple[list[Tensor], list[Tensor], list[Tensor]]:
        """bev (B, L, C), queries (Q, 2C): position, content. As `Decoder.forward`."""
        pos, content = queries.chunk(2, dim=-1)
        with torch.autocast(bev.device.type, enabled=False):
            references = self.reference_points(pos).sigmoid()
        B = bev.shape[0]
        return self.decoder(
            content.expand(B, -1, -1),
            pos.expand(B, -1, -1),
            bev,
            references.expand(B, -1, -1),
            self.bev_shape,
            reg_branches,
        )
