"""Sums on the GPU that are the same every time: in 64-bit fixed point the order of the terms does not matter."""

import torch
from torch import Tensor

_BITS = 62


def fixed_point_scale(terms: int, *factors: Tensor) -> Tensor | None:
    """By what to multiply the terms of a sum, products of one number of each factor, before rounding them to int64.

    Args:
        terms: the largest number of terms of a sum.
        factors: tensors of any shape; no term may be larger than the product of their largest numbers.

    Returns:
        a power of two, float64, such that no sum exceeds 62 bits; None where sums are to be in floating point:
        on the CPU, and unless `torch.use_deterministic_algorithms(True)` was called.
    """
    if not (factors[0].is_cuda and torch.are_deterministic_algorithms_enabled()):
        return None
    if any(factor.numel() == 0 for factor in factors):
        return None
    bound = max(1, terms)
    for factor in factors:
        bound = factor.abs().amax().double() * bound
    return torch.exp2(torch.floor(_BITS - torch.log2(bound.clamp(min=1e-300))).clamp(max=1000))
