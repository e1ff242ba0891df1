"""The object decoder: queries attend to each other and to the BEV and refine their references."""

import torch
from mmcv.cnn.bricks.transformer import FFN
from torch import Tensor, nn

from .deformable_attention import DeformableAttention


def inverse_sigmoid(x: Tensor, eps: float = 1e-5) -> Tensor:
    """ln(x / (1 - x)) with x clamped to 0...1, and both terms to at least `eps`."""
    x = x.clamp(0, 1)
    return torch.log(x.clamp(min=eps) / (1 - x).clamp(min=eps))


class SelfAttention(nn.Module):
    """Attention among the queries, with residual; positions are added to queries and keys only."""

    def __init__(self, embed_dims: int, num_heads: int, dropout: float) -> None:
        super().__init__()
        self.attn = nn.MultiheadAttention(embed_dims, num_heads, dropout=dropout, batch_first=True)
        self.dropout = nn.Dropout(dropout)

    def forward(self, query: Tensor, pos: Tensor) -> Tensor:
        """query, pos (B, Q, C) → (B, Q, C)."""
        x = query + pos
        return query + self.dropout(self.attn(x, x, query, need_weights=False)[0])


class DecoderLayer(nn.Module):
    """self-attention, norm, attention to the BEV, norm, FFN, norm."""

    def __init__(
        self, embed_dims: int, num_heads: int, num_points: int, ffn_dims: int, dropout: float
    ) -> None:
        super().__init__()
        self.attentions = nn.ModuleList(
            [
                SelfAttention(embed_dims, num_heads, dropout),
                DeformableAttention(embed_dims, num_heads, num_points, dropout),
            ]
        )
        self.ffns = nn.ModuleList([FFN(embed_dims, ffn_dims, ffn_drop=dropout)])
        self.norms = nn.ModuleList([nn.LayerNorm(embed_dims) for _ in range(3)])

    def forward(
        self,
        query: Tensor,
        pos: Tensor,
        bev: Tensor,
        references: Tensor,
        bev_shape: tuple[int, int],
    ) -> Tensor:
        """query, pos (B, Q, C), bev (B, L, C), references (B, Q, 2) → (B, Q, C)."""
        x = self.norms[0](self.attentions[0](query, pos))
        x = self.norms[1](self.attentions[1](x, pos, bev, references, bev_shape))
        return self.norms[2](self.ffns[0](x))


class Decoder(nn.Module):
    """Layers with iterative refinement of the reference points (Deformable DETR, section 4)."""

    def __init__(
        self,
        num_layers: int,
        embed_dims: int,
        num_heads: int = 8,
        num_points: int = 4,
        ffn_dims: int = 512,
        dropout: float = 0.1,
    ) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            DecoderLayer(embed_dims, num_heads, num_points, ffn_dims, dropout)
            for _ in range(num_layers)
        )

    def forward(
        self,
        query: Tensor,
        pos: Tensor,
        bev: Tensor,
        references: Tensor,
        bev_shape: tuple[int, int],
        reg_branches: nn.ModuleList,
    ) -> tuple[list[Tensor], list[Tensor], list[Tensor]]:
        """
        Args:
            query, pos: (B, Q, C).
            bev: (B, L, C).
            references: (B, Q, 3) in 0...1, (x, y, z).
            reg_branches: the head's box branch of every layer; outputs 0, 1 and 4 move x, y and z.

        Returns:
            For each layer: its state (B, Q, C), the output (B, Q, box size) float32 of its box
                branch, and the
            references (B, Q, 3) that it started from. All but the first references are detached.
        """
        states, boxes, used = [], [], []
        x = query
        for layer, branch in zip(self.layers, reg_branches, strict=True):
            x = layer(x, pos, bev, references[..., :2], bev_shape)
            states.append(x)
            boxes.append(branch(x).float())
            used.append(references)
            move = boxes[-1].detach()[..., [0, 1, 4]]
            references = (move + inverse_sigmoid(references.detach())).sigmoid()
        return states, boxes, used
