"""Checks of arguments where the user is: one short line that names op, argument, what it got and what it wants."""

import os

import torch
from torch import Tensor

CHECK_GPU_VALUES: bool = os.environ.get("MMCV_CHECK_GPU_VALUES", "0") not in ("", "0")
"""Check numbers in GPU tensors too, where each check waits for the GPU. For finding errors."""


def check_dtype(op: str, argument: str, tensor: Tensor) -> None:
    """TypeError unless a floating-point tensor."""
    if not isinstance(tensor, Tensor):
        raise TypeError(f"{op}: {argument} must be a Tensor, got {type(tensor).__name__}")
    if not tensor.is_floating_point():
        raise TypeError(f"{op}: {argument} must be floating point, got {tensor.dtype}")


def check_shape(op: str, argument: str, tensor: Tensor, shape: str) -> None:
    """ValueError unless the tensor has as many dimensions as `shape`, "(B, N, 4)"; numbers in it must match."""
    wanted = [part.strip() for part in shape.strip("()").split(",") if part.strip()]
    fits = tensor.dim() == len(wanted) and all(
        not part.isdigit() or size == int(part) for part, size in zip(wanted, tensor.shape)
    )
    if not fits:
        raise ValueError(f"{op}: {argument} must be {shape}, got {tuple(tensor.shape)}")


def check_same_device(op: str, **tensors: Tensor) -> None:
    """ValueError naming both devices unless all tensors are on one."""
    (first, reference), *others = tensors.items()
    for argument, tensor in others:
        if tensor.device != reference.device:
            raise ValueError(
                f"{op}: {argument} must be on the device of {first}, {reference.device}, got {tensor.device}"
            )


def can_read(tensor: Tensor) -> bool:
    """Whether the numbers of a tensor may be checked: on the CPU, and on the GPU if `CHECK_GPU_VALUES` asks for it."""
    if torch.compiler.is_compiling() or isinstance(tensor, torch._subclasses.FakeTensor):
        return False
    return CHECK_GPU_VALUES or tensor.device.type == "cpu"
