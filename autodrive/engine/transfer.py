"""Data to the GPU, and numbers from it, without making the host wait for the work queued before.

A copy from ordinary memory, or reading a number, waits until the GPU has done all that its stream holds; the GPU then
idles while the host prepares what comes next.
"""

from collections.abc import Callable
from functools import cache

import numpy as np
import torch
from torch import Tensor


def upload(data: np.ndarray | Tensor, device: torch.device, dtype: torch.dtype) -> Tensor:
    """`data` on `device` as `dtype`; to a GPU through page-locked memory, so that the host goes on at once."""
    tensor = torch.as_tensor(data, dtype=dtype)
    if device.type != "cuda" or tensor.is_cuda:
        return tensor.to(device)
    return tensor.pin_memory().to(device, non_blocking=True)


def on_side_stream(device: torch.device, compute: Callable[[], tuple[Tensor, ...]]) -> tuple:
    """Runs `compute` on a stream of its own: what it reads from the GPU waits for its own work only.

    It must not use tensors that the current stream is still to write.
    """
    if device.type != "cuda":
        return compute()
    stream, current = _side_stream(device), torch.cuda.current_stream(device)
    with torch.cuda.stream(stream):
        results = compute()
    current.wait_stream(stream)
    for tensor in results:
        tensor.record_stream(current)  # or its memory would be given away too early
    return results


@cache
def _side_stream(device: torch.device) -> torch.cuda.Stream:
    return torch.cuda.Stream(device)
