"""GridMask augmentation (Chen et al. 2020): a grid of square holes in the training images."""

import torch
from torch import Tensor, nn


def grid_keep_mask(h: int, w: int, period: int, row_offset: int, col_offset: int) -> Tensor:
    """(h, w) bool, True where a pixel is kept.

    Stripes of half a period, in rows and columns, are drawn on a canvas one and a half times as
    large, whose middle is taken. A pixel in no stripe is dropped.
    """
    stripe = min(max(int(0.5 * period + 0.5), 1), period - 1)

    def stripes(size: int, offset: int) -> Tensor:
        canvas = int(1.5 * size)
        position = torch.arange(canvas)
        inside = position - offset
        marked = (inside >= 0) & (inside % period < stripe) & (inside // period < canvas // period)
        start = (canvas - size) // 2
        return marked[start : start + size]

    return stripes(h, row_offset)[:, None] | stripes(w, col_offset)[None]


class GridMask(nn.Module):
    """Zeroes the holes of one random grid in all images of the batch, in training mode only."""

    def __init__(self, prob: float = 0.7) -> None:
        super().__init__()
        self.prob = prob

    def forward(self, images: Tensor) -> Tensor:
        """images (..., h, w), same shape back. Draws from torch's default CPU generator."""
        if not self.training or torch.rand(()).item() >= self.prob:
            return images
        h, w = images.shape[-2:]
        period = int(torch.randint(2, h, ()))
        row_offset, col_offset = (int(x) for x in torch.randint(0, period, (2,)))
        keep = grid_keep_mask(h, w, period, row_offset, col_offset)
        return images * keep.to(images.device)
