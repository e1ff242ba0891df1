"""mmengine's OptimWrapper with bf16 autocast, and gradient clipping that does not wait for the GPU."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from mmengine.optim import OptimWrapper
from mmengine.registry import OPTIM_WRAPPERS
from torch import Tensor, nn


@OPTIM_WRAPPERS.register_module()
class TrainingOptimWrapper(OptimWrapper):
    """What `autodrive train` uses in place of `OptimWrapper`.

    After each step `grad_norm` is the norm before clipping, () on the device of the gradients, or None without
    `clip_grad`. mmengine's wrapper reads the number in every step, until when the host prepares nothing for the GPU.

    Args:
        bf16: forward passes under bf16 autocast, on GPU or CPU; no loss scaling, bf16 has fp32's range.
    """

    def __init__(self, *args, bf16: bool = False, **kwargs) -> None:
        super().__init__(*args, **kwargs)
        self.bf16 = bf16
        self.grad_norm: Tensor | None = None

    @contextmanager
    def optim_context(self, model: nn.Module) -> Iterator[None]:
        device = next(model.parameters()).device.type
        with super().optim_context(model), torch.autocast(device, torch.bfloat16, self.bf16):
            yield

    def _clip_grad(self) -> None:
        groups = self.optimizer.param_groups
        parameters = [p for group in groups for p in group["params"] if p.grad is not None]
        if parameters:
            self.grad_norm = self.clip_func(parameters, **self.clip_grad_kwargs)
