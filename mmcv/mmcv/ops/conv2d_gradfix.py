"""torch's convolutions, which today have the double backward that these names once added."""

from torch.nn.functional import conv2d, conv_transpose2d

__all__ = ["conv2d", "conv_transpose2d"]
