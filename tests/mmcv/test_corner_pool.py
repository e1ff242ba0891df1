import pytest
import torch
from mmcv.ops import CornerPool

from tests.mmcv.devices import DEVICES


def reference(x, mode):
    """For every pixel the largest value between it and the border it comes from."""
    out = torch.empty_like(x)
    H, W = x.shape[2:]
    for h in range(H):
        for w in range(W):
            rows = {"bottom": slice(0, h + 1), "top": slice(h, H)}.get(mode, slice(h, h + 1))
            columns = {"right": slice(0, w + 1), "left": slice(w, W)}.get(mode, slice(w, w + 1))
            out[:, :, h, w] = x[:, :, rows, columns].amax((2, 3))
    return out


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("mode", ["bottom", "top", "left", "right"])
def test_equals_the_definition(device, mode):
    x = torch.randn(2, 3, 5, 4, device=device)
    assert torch.equal(CornerPool(mode)(x), reference(x, mode))
    assert CornerPool(mode)(x[:0]).shape == (0, 3, 5, 4)


def test_unknown_mode():
    with pytest.raises(AssertionError, match="mode must be"):
        CornerPool("middle")
