"""Shared memory, through which data loader workers hand over their samples."""

import shutil
import sys
from typing import Any

import torch
from mmengine.dist import is_main_process
from mmengine.hooks import Hook
from mmengine.registry import HOOKS
from mmengine.structures import BaseDataElement
from torch.utils.data import DataLoader

MEBIBYTE = 2**20
SHARED_MEMORY = "/dev/shm"


@HOOKS.register_module()
class SharedMemoryHook(Hook):
    """Says before training if a container was given too little shared memory: later it is a bus error in a worker.

    Args:
        strict: an error instead of a warning.
    """

    def __init__(self, strict: bool = False) -> None:
        self.strict = strict

    def before_train(self, runner) -> None:
        problem = shared_memory_problem(runner.train_dataloader)
        if problem and self.strict:
            raise ValueError(problem)
        if problem and is_main_process():
            print(f"warning: {problem}", file=sys.stderr)


def shared_memory_problem(loader: DataLoader, path: str = SHARED_MEMORY) -> str | None:
    """What is wrong with the size of shared memory for a data loader's workers, and what helps; None if it suffices.

    The need is the batches that workers have ready or in the making (`prefetch_factor` each, and one that is being
    trained on), at the size of the first sample.
    """
    if not loader.num_workers:
        return None
    try:
        size = shutil.disk_usage(path).total
    except OSError:
        return None
    batches = loader.num_workers * (loader.prefetch_factor or 2) + 1
    need = batches * (loader.batch_size or 1) * tensor_bytes(loader.dataset[0])
    if size >= need:
        return None
    return (
        f"{path} has {size // MEBIBYTE} MiB, {loader.num_workers} workers need about {need // MEBIBYTE} MiB: start the "
        "container with --shm-size=8G or --ipc=host, or set train_dataloader.num_workers lower"
    )


def tensor_bytes(sample: Any) -> int:
    """Size of all tensors in nested dicts, sequences and data elements."""
    if isinstance(sample, torch.Tensor):
        return sample.numel() * sample.element_size()
    if isinstance(sample, BaseDataElement):
        sample = dict(sample.all_items())
    if isinstance(sample, dict):
        return sum(map(tensor_bytes, sample.values()))
    if isinstance(sample, (list, tuple)):
        return sum(map(tensor_bytes, sample))
    return tensor_bytes(sample.tensor) if hasattr(sample, "tensor") else 0
