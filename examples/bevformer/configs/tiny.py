"""BEVFormer-tiny as published: ResNet-50, images at half size, a BEV of 50 x 50 cells."""

from mmdet.models import FPN, ResNet
from mmengine.optim import CosineAnnealingLR, LinearLR, OptimWrapper
from mmengine.runner import ValLoop
from torch.optim import AdamW

from autodrive.data.dataset import NuScenesSequenceDataset
from autodrive.data.sampler import QueueSampler, SceneSampler
from autodrive.data.transforms import (
    LoadMultiViewImages,
    NormalizeMultiView,
    PadMultiView,
    PhotometricDistortionMultiView,
    ScaleMultiView,
)
from autodrive.engine.loop import TrainLoop
from autodrive.metrics import NuScenesDetectionMetric
from examples.bevformer import BEVFormer, BEVFormerHead

model = dict(
    type=BEVFormer,
    use_grid_mask=True,
    img_backbone=dict(
        type=ResNet,
        depth=50,
        num_stages=4,
        out_indices=(3,),
        frozen_stages=1,
        norm_cfg=dict(type="BN", requires_grad=False),
        norm_eval=True,
        style="pytorch",
        init_cfg=dict(type="Pretrained", checkpoint="torchvision://resnet50"),
    ),
    img_neck=dict(
        type=FPN,
        in_channels=[2048],
        out_channels=256,
        num_outs=1,
        add_extra_convs="on_output",
        relu_before_extra_convs=True,
    ),
    pts_bbox_head=dict(type=BEVFormerHead, bev_h=50, bev_w=50, encoder_layers=3),
)

data_root = "data/nuscenes"
normalize = dict(
    type=NormalizeMultiView,
    mean=(123.675, 116.28, 103.53),
    std=(58.395, 57.12, 57.375),
    to_rgb=True,
)
test_pipeline = [
    dict(type=LoadMultiViewImages),
    normalize,
    dict(type=ScaleMultiView, scale=0.5),
    dict(type=PadMultiView, divisor=32),
]
train_pipeline = [test_pipeline[0], dict(type=PhotometricDistortionMultiView), *test_pipeline[1:]]
train_dataloader = dict(
    batch_size=1,
    num_workers=4,
    persistent_workers=True,
    pin_memory=True,
    sampler=dict(type=QueueSampler),
    dataset=dict(
        type=NuScenesSequenceDataset,
        data_root=data_root,
        split="train",
        pipeline=train_pipeline,
        queue_length=3,
    ),
)
val_dataloader = dict(
    batch_size=1,
    num_workers=4,
    persistent_workers=True,
    pin_memory=True,
    sampler=dict(type=SceneSampler),
    dataset=dict(
        type=NuScenesSequenceDataset,
        data_root=data_root,
        split="val",
        pipeline=test_pipeline,
        test_mode=True,
    ),
)
val_evaluator = dict(type=NuScenesDetectionMetric, data_root=data_root, split="val")

# 24 epochs of 8 GPUs x 1 sample; the rate falls once per epoch.
train_cfg = dict(type=TrainLoop, max_epochs=24, val_interval=1)
val_cfg = dict(type=ValLoop)
optim_wrapper = dict(
    type=OptimWrapper,
    optimizer=dict(type=AdamW, lr=2e-4, weight_decay=0.01),
    paramwise_cfg=dict(custom_keys={"img_backbone": dict(lr_mult=0.1)}),
    clip_grad=dict(max_norm=35),
)
param_scheduler = [
    dict(type=LinearLR, start_factor=1 / 3, by_epoch=False, begin=0, end=501),
    dict(type=CosineAnnealingLR, by_epoch=True, T_max=24, eta_min_ratio=1e-3),
]
