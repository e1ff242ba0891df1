"""BEVFormer-tiny from scratch on a single key frame, to see whether it finds the boxes of a real one.

There is no other frame to learn from and nothing to generalise to: no history, no augmentation.
"""

from mmengine.config import read_base

with read_base():
    from .tiny_synth import *

test_pipeline = [dict(type=LoadMultiViewImages, width=800, cache=True)]
train_dataloader.merge(
    dict(batch_size=1, num_workers=2, dataset=dict(pipeline=test_pipeline, queue_length=1))
)
val_dataloader.merge(dict(num_workers=1, dataset=dict(pipeline=test_pipeline)))
optim_wrapper.merge(dict(optimizer=dict(lr=2e-4)))
