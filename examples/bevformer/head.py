"""BEVFormer's head: queries, transformer, class and box branches, losses, predictions."""

from dataclasses import dataclass

import numpy as np
import torch
from mmdet3d.structures import LiDARInstance3DBoxes
from mmengine.structures import InstanceData
from torch import Tensor, nn

from autodrive.engine.transfer import upload
from autodrive.geometry.boxes import (
    LIDAR_BOX_SIZE,
    NETWORK_BOX_SIZE,
    lidar_to_network_boxes,
    network_to_lidar_boxes,
)

from .decoder import Decoder, inverse_sigmoid
from .encoder import BEVEncoder
from .losses import averaging_factor, detection_losses
from .matching import match
from .transformer import PerceptionTransformer

PRIOR_PROBABILITY = 0.01  # of a class at the start of training (Lin et al. 2017, section 4.1)


@dataclass(frozen=True)
class Detections:
    """Raw outputs of all decoder layers, float32.

    logits (layers, B, Q, classes); boxes (layers, B, Q, 10) network boxes; states (layers, B, Q,
    C); references (layers, B, Q, 3) in 0...1, from which each layer started.
    """

    logits: Tensor
    boxes: Tensor
    states: Tensor
    references: Tensor


class LearnedPosition(nn.Module):
    """Position of a BEV cell: the embedding of its column, then that of its row."""

    def __init__(self, bev_h: int, bev_w: int, embed_dims: int) -> None:
        super().__init__()
        self.row_embed = nn.Embedding(bev_h, embed_dims // 2)
        self.col_embed = nn.Embedding(bev_w, embed_dims // 2)

    def forward(self) -> Tensor:
        """(1, bev_h * bev_w, embed_dims)."""
        rows, cols = self.row_embed.weight, self.col_embed.weight
        shape = (len(rows), len(cols), -1)
        position = torch.cat([cols[None].expand(*shape), rows[:, None].expand(*shape)], dim=-1)
        return position.flatten(0, 1).unsqueeze(0)


def class_branch(embed_dims: int, num_classes: int) -> nn.Sequential:
    layers = []
    for _ in range(2):
        layers += [nn.Linear(embed_dims, embed_dims), nn.LayerNorm(embed_dims), nn.ReLU()]
    last = nn.Linear(embed_dims, num_classes)
    nn.init.constant_(last.bias, -np.log((1 - PRIOR_PROBABILITY) / PRIOR_PROBABILITY))
    return nn.Sequential(*layers, last)


def box_branch(embed_dims: int) -> nn.Sequential:
    layers = []
    for _ in range(2):
        layers += [nn.Linear(embed_dims, embed_dims), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(embed_dims, NETWORK_BOX_SIZE))


class BEVFormerHead(nn.Module):
    """Everything behind the image features (BEVFormer, arXiv 2203.17270).

    The defaults are those of the published configurations; a configuration gives the grid, the
    layers and the number of feature levels.

    Args:
        pc_range: (x0, y0, z0, x1, y1, z1) in metres, lidar frame: the BEV, and the scale of
            predicted centres.
        post_center_range: predictions with a centre outside are dropped; same order and units.
        max_num: predictions kept per sample; a query may give several, of different classes.
        shift_current, rotate_center: see `BEVEncoder` and `PerceptionTransformer`.
        code_weights: weight of each number of a network box in the box loss.
    """

    def __init__(
        self,
        bev_h: int,
        bev_w: int,
        encoder_layers: int,
        decoder_layers: int = 6,
        num_levels: int = 1,
        num_classes: int = 10,
        num_query: int = 900,
        embed_dims: int = 256,
        num_heads: int = 8,
        ffn_dims: int = 512,
        num_cams: int = 6,
        num_heights: int = 4,
        spatial_points: int = 8,
        temporal_points: int = 4,
        decoder_points: int = 4,
        dropout: float = 0.1,
        shift_current: bool = True,
        rotate_center: tuple[float, float] | None = (100.0, 100.0),
        pc_range: tuple[float, ...] = (-51.2, -51.2, -5.0, 51.2, 51.2, 3.0),
        post_center_range: tuple[float, ...] = (-61.2, -61.2, -10.0, 61.2, 61.2, 10.0),
        max_num: int = 300,
        code_weights: tuple[float, ...] = (1, 1, 1, 1, 1, 1, 1, 1, 0.2, 0.2),
        class_weight: float = 2.0,
        box_weight: float = 0.25,
    ) -> None:
        super().__init__()
        self.num_levels = num_levels
        self.num_classes = num_classes
        self.pc_range = tuple(pc_range)
        self.post_center_range = tuple(post_center_range)
        self.max_num = max_num
        self.class_weight = class_weight
        self.box_weight = box_weight
        self.bev_embedding = nn.Embedding(bev_h * bev_w, embed_dims)
        self.query_embedding = nn.Embedding(num_query, 2 * embed_dims)
        self.positional_encoding = LearnedPosition(bev_h, bev_w, embed_dims)
        self.register_buffer("center_range", torch.tensor(pc_range).view(2, 3), persistent=False)
        self.code_weights = nn.Parameter(
            torch.tensor(code_weights, dtype=torch.float32), requires_grad=False
        )
        self.transformer = PerceptionTransformer(
            BEVEncoder(
                encoder_layers,
                embed_dims,
                bev_h,
                bev_w,
                self.pc_range,
                num_heads=num_heads,
                num_levels=num_levels,
                num_heights=num_heights,
                temporal_points=temporal_points,
                spatial_points=spatial_points,
                ffn_dims=ffn_dims,
                dropout=dropout,
                shift_current=shift_current,
            ),
            Decoder(decoder_layers, embed_dims, num_heads, decoder_points, ffn_dims, dropout),
            embed_dims,
            self.pc_range,
            num_cams,
            rotate_center,
        )
        self.cls_branches = nn.ModuleList(
            class_branch(embed_dims, num_classes) for _ in range(decoder_layers)
        )
        self.reg_branches = nn.ModuleList(box_branch(embed_dims) for _ in range(decoder_layers))

    def encode(
        self,
        features: list[Tensor],
        lidar2img: Tensor,
        img_shape: tuple[int, int],
        can_bus: np.ndarray,
        prev_bev: Tensor | None = None,
        has_prev: np.ndarray | None = None,
    ) -> Tensor:
        """BEV (B, L, C); arguments as in `PerceptionTransformer.encode`."""
        if len(features) != self.num_levels:
            raise ValueError(
                f"features must have num_levels={self.num_levels} levels, got {len(features)}"
            )
        return self.transformer.encode(
            features,
            self.bev_embedding.weight,
            self.positional_encoding(),
            lidar2img,
            img_shape,
            can_bus,
            prev_bev,
            has_prev,
        )

    def decode(self, bev: Tensor) -> Detections:
        """Object predictions from the BEV (B, L, C)."""
        states, boxes, references = self.transformer.decode(
            bev, self.query_embedding.weight, self.reg_branches
        )
        logits = torch.stack([branch(x) for branch, x in zip(self.cls_branches, states)]).float()
        references = torch.stack(references)
        raw = torch.stack(boxes)
        low, high = self.center_range
        center = (raw[..., [0, 1, 4]] + inverse_sigmoid(references)).sigmoid()
        center = center * (high - low) + low
        boxes = torch.cat([center[..., :2], raw[..., 2:4], center[..., 2:], raw[..., 5:]], dim=-1)
        return Detections(logits, boxes, torch.stack(states), references)

    def loss(
        self,
        detections: Detections,
        gt_labels: list[Tensor],
        gt_boxes: list[Tensor],
        tokens: list[str],
    ) -> dict[str, Tensor]:
        """Losses of every decoder layer; the same keys whether or not there is any ground truth.

        Args:
            gt_labels: per sample (n,) int64; best on the CPU, to be uploaded together.
            gt_boxes: per sample (n, 9) lidar boxes; best on the CPU.
            tokens: sample tokens, for errors.
        """
        logits, boxes = detections.logits, detections.boxes
        targets = [lidar_to_network_boxes(gt.float()) for gt in gt_boxes]
        matched = match(
            logits, boxes, gt_labels, targets, tokens, self.class_weight, self.box_weight
        )
        padded_labels = upload(_padded(gt_labels), logits.device, torch.int64)
        padded_boxes = upload(_padded(targets), logits.device, torch.float32)
        factor = averaging_factor((matched[0] >= 0).sum())
        last = len(logits) - 1
        losses = {}
        for layer in range(len(logits)):
            class_loss, box_loss = detection_losses(
                logits[layer],
                boxes[layer],
                matched[layer],
                padded_labels,
                padded_boxes,
                factor,
                self.code_weights,
                self.class_weight,
                self.box_weight,
            )
            prefix = "" if layer == last else f"d{layer}."
            losses[f"{prefix}loss_cls"] = class_loss
            losses[f"{prefix}loss_bbox"] = box_loss
        return losses

    @torch.no_grad()
    def predict(self, detections: Detections) -> list[InstanceData]:
        """Boxes of the last decoder layer, best first; no NMS and no score threshold.

        Returns:
            Per sample: `bboxes_3d` LiDARInstance3DBoxes (n, 9), `scores_3d` (n,), `labels_3d` (n,)
                int64.
        """
        scores, index = (
            detections.logits[-1]
            .sigmoid()
            .flatten(1)
            .topk(min(self.max_num, detections.logits[-1][0].numel()), dim=-1)
        )
        query = index // self.num_classes
        boxes = detections.boxes[-1].gather(1, query.unsqueeze(-1).expand(-1, -1, NETWORK_BOX_SIZE))
        center = boxes[..., [0, 1, 4]]
        low, high = boxes.new_tensor(self.post_center_range).view(2, 3)
        inside = ((center >= low) & (center <= high)).all(-1)
        lidar_boxes = network_to_lidar_boxes(boxes)
        return [
            InstanceData(
                bboxes_3d=LiDARInstance3DBoxes(lidar_boxes[b][keep], box_dim=LIDAR_BOX_SIZE),
                scores_3d=scores[b][keep],
                labels_3d=index[b][keep] % self.num_classes,
            )
            for b, keep in enumerate(inside)
        ]


def _padded(rows: list[Tensor]) -> Tensor:
    """(B, n, ...) for rows of the longest sample, at least one so that there is something to gather."""
    filled = [x if len(x) else x.new_zeros(1, *x.shape[1:]) for x in rows]
    return nn.utils.rnn.pad_sequence(filled, batch_first=True)
