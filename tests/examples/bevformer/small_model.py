"""A BEVFormer small enough for unit tests, and random samples for it."""

import numpy as np
import torch
from mmdet.models import FPN, ResNet
from mmdet3d.structures import Det3DDataSample, LiDARInstance3DBoxes
from mmengine.structures import InstanceData
from torch import Tensor

from examples.bevformer import BEVFormer, BEVFormerHead

IMG_SHAPE = (64, 96)


def small_model(dropout: float = 0.0, grid_mask: bool = False, **head) -> BEVFormer:
    """ResNet-18 with 8 channels and frozen BN, a BEV of 10 x 8 cells, 2 + 2 layers."""
    torch.manual_seed(0)
    arguments = dict(
        bev_h=10,
        bev_w=8,
        encoder_layers=2,
        decoder_layers=2,
        num_query=20,
        embed_dims=32,
        ffn_dims=32,
        dropout=dropout,
        rotate_center=None,
    )
    model = BEVFormer(
        img_backbone=dict(
            type=ResNet,
            depth=18,
            base_channels=8,
            num_stages=3,
            strides=(1, 2, 2),
            dilations=(1, 1, 1),
            out_indices=(2,),
            norm_cfg=dict(type="BN", requires_grad=False),
            norm_eval=True,
        ),
        img_neck=dict(type=FPN, in_channels=[32], out_channels=32, num_outs=1),
        pts_bbox_head=dict(type=BEVFormerHead, **(arguments | head)),
        use_grid_mask=grid_mask,
    )
    # Sampling offsets and weights start at zero weight; here they shall depend on the queries.
    for name, parameter in model.named_parameters():
        if "sampling_offsets.weight" in name or "attention_weights.weight" in name:
            torch.nn.init.normal_(parameter, std=0.1)
    return model


def ring_cameras(turn: float = 0.0) -> np.ndarray:
    """lidar2img (6, 4, 4) of six cameras looking around, for images of `IMG_SHAPE`."""
    h, w = IMG_SHAPE
    matrices = []
    for k in range(6):
        angle = turn + k * np.pi / 3
        forward = np.array([np.cos(angle), np.sin(angle), 0.0])
        right = np.array([np.sin(angle), -np.cos(angle), 0.0])
        lidar2cam = np.eye(4)
        lidar2cam[:3, :3] = [right, [0, 0, -1], forward]
        intrinsic = np.diag([0.7 * w, 0.7 * w, 1.0, 1.0])
        intrinsic[:2, 2] = w / 2, h / 2
        matrices.append(intrinsic @ lidar2cam)
    return np.stack(matrices)


def random_boxes(rng: np.random.Generator, n: int) -> InstanceData:
    boxes = np.zeros((n, 9), dtype=np.float32)
    boxes[:, :2] = rng.uniform(-45, 45, (n, 2))
    boxes[:, 2] = rng.uniform(-2, 0, n)
    boxes[:, 3:6] = rng.uniform(0.5, 5, (n, 3))
    boxes[:, 6] = rng.uniform(-np.pi, np.pi, n)
    boxes[:, 7:] = rng.normal(size=(n, 2))
    return InstanceData(
        bboxes_3d=LiDARInstance3DBoxes(torch.from_numpy(boxes), box_dim=9),
        labels_3d=torch.from_numpy(rng.integers(0, 10, n)),
    )


def make_sample(
    seed: int,
    frames: int = 2,
    scene: str = "scene",
    boxes: int = 5,
    history: bool = True,
    time: float = 0.0,
) -> tuple[Tensor, Det3DDataSample]:
    """Images (T, 6, 3, h, w) and a data sample; `history` False: no frame has a predecessor."""
    rng = np.random.default_rng(seed)
    images = rng.standard_normal((frames, 6, 3, *IMG_SHAPE)).astype(np.float32)
    can_bus = rng.normal(size=(frames, 18))
    can_bus[:, 16] = rng.uniform(0, 2 * np.pi, frames)
    can_bus[:, 17] = rng.uniform(-20, 20, frames)
    can_bus[:, :3] = rng.uniform(-8, 8, (frames, 3))
    exists = np.array([history and t > 0 for t in range(frames)])
    sample = Det3DDataSample(
        metainfo=dict(
            lidar2img=np.stack([ring_cameras(rng.uniform(0, 1)) for _ in range(frames)]),
            can_bus=can_bus,
            prev_bev_exists=exists,
            scene_token=[scene] * frames,
            token=[f"{scene} {seed} {t}" for t in range(frames)],
            timestamp=[time + 0.5 * t for t in range(frames)],
        )
    )
    sample.gt_instances_3d = random_boxes(rng, boxes)
    return torch.from_numpy(images), sample


def batch(*samples: tuple[Tensor, Det3DDataSample]) -> tuple[dict, list[Det3DDataSample]]:
    return {"img": [images for images, _ in samples]}, [sample for _, sample in samples]
