"""What tests of ops run over: the CPU, and the GPU where torch has one."""

import pytest
import torch

GPU = pytest.param(
    "cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
)
DEVICES = ["cpu", GPU]
DTYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
TOLERANCE = {
    torch.float32: 1e-5,
    torch.float64: 1e-11,
    torch.float16: 2e-3,
    torch.bfloat16: 1.6e-2,
}
"""Relative to the largest number of the expected result."""


def assert_close(found: torch.Tensor, expected, dtype: torch.dtype | None = None) -> None:
    """Compares with a float64 reference, relative to its largest number."""
    expected = torch.as_tensor(expected, dtype=torch.float64)
    found = found.detach().double().cpu()
    assert found.shape == expected.shape
    if expected.numel() == 0:
        return
    scale = max(expected.abs().max().item(), 1e-30)
    error = (found - expected).abs().max().item() / scale
    assert error <= TOLERANCE[dtype or torch.float32], error
