"""BEVFormer-base as published: full images, four feature levels, a BEV of 200 x 200 cells."""

from mmengine.config import read_base

with read_base():
    from .small import *

model.merge(
    dict(
        img_backbone=dict(out_indices=(1, 2, 3), with_cp=False),
        img_neck=dict(in_channels=[512, 1024, 2048], num_outs=4),
        pts_bbox_head=dict(bev_h=200, bev_w=200, encoder_layers=6, num_levels=4),
    )
)

test_pipeline = [dict(type=LoadMultiViewImages), normalize, dict(type=PadMultiView, divisor=32)]
train_pipeline = [test_pipeline[0], dict(type=PhotometricDistortionMultiView), *test_pipeline[1:]]
train_dataloader.dataset.update(dict(pipeline=train_pipeline, queue_length=4))
val_dataloader.dataset.update(dict(pipeline=test_pipeline))
