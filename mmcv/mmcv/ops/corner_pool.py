"""Corner pooling (Law & Deng 2018, "CornerNet", section 3.3)."""

from torch import Tensor, nn

# mode: (dimension along which the maximum grows, whether it grows towards smaller indices)
_DIRECTIONS = {"bottom": (2, False), "top": (2, True), "right": (3, False), "left": (3, True)}


class CornerPool(nn.Module):
    """The largest value met so far on the way to the bottom, top, right or left.

    Args:
        mode: where the way leads.
    """

    def __init__(self, mode: str) -> None:
        super().__init__()
        assert mode in _DIRECTIONS, f"CornerPool: mode must be one of {[*_DIRECTIONS]}, got {mode}"
        self.mode = mode

    def forward(self, x: Tensor) -> Tensor:
        """x (N, C, H, W), the result has the same shape."""
        dim, backwards = _DIRECTIONS[self.mode]
        if backwards:
            return x.flip(dim).cummax(dim)[0].flip(dim)
        return x.cummax(dim)[0]

    def extra_repr(self) -> str:
        return f"mode={self.mode}"
