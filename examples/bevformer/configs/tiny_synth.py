"""BEVFormer-tiny from scratch on a synthetic dataset of 20 scenes, in minutes on one GPU."""

from mmengine.config import read_base

from autodrive.data.preprocessor import MultiViewImagePreprocessor

with read_base():
    from .tiny import *

# Nothing is pre-trained, so nothing is frozen, and the backbone learns as fast as the rest.
model.merge(
    dict(
        use_grid_mask=False,
        img_backbone=dict(
            frozen_stages=-1,
            norm_cfg=dict(type="BN", requires_grad=True),
            norm_eval=False,
            init_cfg=None,
        ),
        pts_bbox_head=dict(rotate_center=None, dropout=0.0),
    )
)

# Bytes to the GPU, where they are normalised and padded: the workers are the bottleneck otherwise.
model.merge(
    dict(
        data_preprocessor=dict(
            type=MultiViewImagePreprocessor,
            mean=normalize["mean"],
            std=normalize["std"],
            to_rgb=normalize["to_rgb"],
        )
    )
)
test_pipeline = [dict(type=LoadMultiViewImages, width=800)]
train_dataloader.merge(
    dict(
        batch_size=8,
        num_workers=12,
        dataset=dict(pipeline=test_pipeline, queue_length=2, mirror=True, max_turn_degrees=10.0),
    )
)
val_dataloader.merge(dict(dataset=dict(pipeline=test_pipeline)))

speed = dict(bf16=True, channels_last=True)

max_epochs = 40
train_cfg.update(dict(max_epochs=max_epochs, val_interval=max_epochs))
optim_wrapper.merge(
    dict(
        optimizer=dict(lr=5e-4, fused=True),
        paramwise_cfg=dict(custom_keys={"img_backbone": dict(lr_mult=1.0)}),
    )
)
param_scheduler = [
    dict(type=LinearLR, start_factor=0.02, by_epoch=False, begin=0, end=100),
    dict(
        type=CosineAnnealingLR,
        T_max=max_epochs,
        eta_min_ratio=0.01,
        by_epoch=True,
        convert_to_iter_based=True,
    ),
]
