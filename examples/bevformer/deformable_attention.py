"""Initial values and sampling of all deformable attentions, and that of the decoder."""

import functools
import math

import torch
from mmcv.ops.multi_scale_deform_attn import ms_deform_attn
from torch import Tensor, nn


def init_sampling(offsets: nn.Linear, weights: nn.Linear, num_heads: int, num_points: int) -> None:
    """Point p of head h starts p + 1 pixels away in the direction of the head; all weights start
    equal.

    The output of `offsets` is (num_heads, maps or levels, num_points, 2) (Deformable DETR, appendix
    A.4).
    """
    nn.init.zeros_(offsets.weight)
    nn.init.zeros_(weights.weight)
    nn.init.zeros_(weights.bias)
    angle = torch.arange(num_heads) * (2 * math.pi / num_heads)
    direction = torch.stack([angle.cos(), angle.sin()], dim=-1)
    direction = direction / direction.abs().amax(dim=-1, keepdim=True)
    bias = direction.view(num_heads, 1, 1, 2) * torch.arange(1, num_points + 1).view(1, 1, -1, 1)
    num_maps = offsets.out_features // (num_heads * num_points * 2)
    with torch.no_grad():
        offsets.bias.copy_(bias.expand(num_heads, num_maps, num_points, 2).flatten())


def init_projection(*projections: nn.Linear) -> None:
    for projection in projections:
        nn.init.xavier_uniform_(projection.weight)
        nn.init.zeros_(projection.bias)


@functools.cache
@torch.inference_mode(False)
def level_tensors(
    shapes: tuple[tuple[int, int], ...], device: torch.device
) -> tuple[Tensor, Tensor]:
    """Shapes (L, 2) as (h, w) and the first row (L,) of each level, int64, for `ms_deform_attn`.

    Made once per device, since every new tensor on a GPU waits for the host.
    """
    starts = [0]
    for h, w in shapes[:-1]:
        starts.append(starts[-1] + h * w)
    return (
        torch.tensor(shapes, dtype=torch.int64, device=device),
        torch.tensor(starts, dtype=torch.int64, device=device),
    )


def sample(
    value: Tensor, shapes: Tensor, starts: Tensor, locations: Tensor, weights: Tensor
) -> Tensor:
    """`ms_deform_attn` in float32, whatever autocast says: bf16 locations would be pixels wrong.

    value (B, S, H, D), locations (B, Q, H, L, P, 2) in 0...1, weights (B, Q, H, L, P) → (B, Q, H *
    D) float32.
    """
    with torch.autocast(value.device.type, enabled=False):
        return ms_deform_attn(value.float(), shapes, starts, locations.float(), weights.float())


class DeformableAttention(nn.Module):
    """Cross-attention of the object queries to the BEV (one level), with residual."""

    def __init__(
        self, embed_dims: int, num_heads: int = 8, num_points: int = 4, dropout: float = 0.1
    ) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.num_points = num_points
        self.sampling_offsets = nn.Linear(embed_dims, num_heads * num_points * 2)
        self.attention_weights = nn.Linear(embed_dims, num_heads * num_points)
        self.value_proj = nn.Linear(embed_dims, embed_dims)
        self.output_proj = nn.Linear(embed_dims, embed_dims)
        self.dropout = nn.Dropout(dropout)
        init_sampling(self.sampling_offsets, self.attention_weights, num_heads, num_points)
        init_projection(self.value_proj, self.output_proj)

    def forward(
        self,
        query: Tensor,
        pos: Tensor,
        bev: Tensor,
        references: Tensor,
        bev_shape: tuple[int, int],
    ) -> Tensor:
        """query and pos (B, Q, C), bev (B, L, C), references (B, Q, 2) in 0...1 → (B, Q, C)."""
        B, Q, _ = query.shape
        x = query + pos
        heads = (B, Q, self.num_heads, 1, self.num_points)
        offsets = self.sampling_offsets(x).float().view(*heads, 2)
        weights = self.attention_weights(x).float().view(heads).softmax(-1)
        shapes, starts = level_tensors((bev_shape,), bev.device)
        locations = references.float().view(B, Q, 1, 1, 1, 2) + offsets / shapes.flip(-1)
        value = self.value_proj(bev).view(B, bev.shape[1], self.num_heads, -1)
        out = sample(value, shapes, starts, locations, weights)
        return query + self.dropout(self.output_proj(out))
