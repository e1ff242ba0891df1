"""BEVFormer for a CPU: small images, a narrow ResNet-18 from scratch, a BEV of 40 x 40 cells.

Made to learn a scene of 20 key frames in minutes on two cores; every part of the model is there.
"""

from mmengine.config import read_base

with read_base():
    from .tiny import *

model.merge(
    dict(
        use_grid_mask=False,
        img_backbone=dict(
            depth=18,
            base_channels=32,
            num_stages=3,
            strides=(1, 2, 2),
            dilations=(1, 1, 1),
            out_indices=(2,),
            frozen_stages=-1,
            norm_cfg=dict(type="BN", requires_grad=True),
            norm_eval=False,
            init_cfg=None,
        ),
        img_neck=dict(in_channels=[128], out_channels=128),
        pts_bbox_head=dict(
            bev_h=40,
            bev_w=40,
            encoder_layers=1,
            decoder_layers=2,
            num_query=120,
            embed_dims=128,
            ffn_dims=256,
            dropout=0.0,
            rotate_center=None,
        ),
    )
)

test_pipeline = [
    dict(type=LoadMultiViewImages, width=320, cache=True),
    normalize,
    dict(type=PadMultiView, divisor=32),
]
train_dataloader.merge(
    dict(
        batch_size=2,
        num_workers=1,
        pin_memory=False,
        dataset=dict(pipeline=test_pipeline, queue_length=2),
    )
)
val_dataloader.merge(dict(num_workers=1, pin_memory=False, dataset=dict(pipeline=test_pipeline)))

speed = dict(bf16=True, channels_last=True)

max_epochs = 90
train_cfg.update(dict(max_epochs=max_epochs, val_interval=max_epochs))
optim_wrapper.merge(
    dict(
        optimizer=dict(lr=1e-3),
        paramwise_cfg=dict(custom_keys={"img_backbone": dict(lr_mult=1.0)}),
        clip_grad=dict(max_norm=10),
    )
)
param_scheduler = [
    dict(type=LinearLR, start_factor=0.02, by_epoch=False, begin=0, end=50),
    dict(
        type=CosineAnnealingLR,
        T_max=max_epochs,
        eta_min_ratio=0.01,
        by_epoch=True,
        convert_to_iter_based=True,
    ),
]
