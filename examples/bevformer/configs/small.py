"""BEVFormer-small as published: ResNet-101 with DCNv2, images at 0.8, a BEV of 150 x 150 cells."""

from mmengine.config import read_base

with read_base():
    from .tiny import *

# Backbone and neck of FCOS3D, as BEVFormer's authors publish them.
fcos3d = "checkpoints/r101_dcn_fcos3d_pretrain.pth"
model.merge(
    dict(
        img_backbone=dict(
            depth=101,
            style="caffe",
            dcn=dict(type="DCNv2", deform_groups=1, fallback_on_stride=False),
            stage_with_dcn=(False, False, True, True),
            with_cp=True,
            init_cfg=dict(checkpoint=fcos3d, prefix="img_backbone."),
        ),
        img_neck=dict(init_cfg=dict(type="Pretrained", checkpoint=fcos3d, prefix="img_neck.")),
        pts_bbox_head=dict(bev_h=150, bev_w=150),
    )
)

normalize.update(dict(mean=(103.53, 116.28, 123.675), std=(1.0, 1.0, 1.0), to_rgb=False))
scale = dict(type=ScaleMultiView, scale=0.8)
test_pipeline = [
    dict(type=LoadMultiViewImages),
    normalize,
    scale,
    dict(type=PadMultiView, divisor=32),
]
train_pipeline = [test_pipeline[0], dict(type=PhotometricDistortionMultiView), *test_pipeline[1:]]
train_dataloader.dataset.update(dict(pipeline=train_pipeline))
val_dataloader.dataset.update(dict(pipeline=test_pipeline))
