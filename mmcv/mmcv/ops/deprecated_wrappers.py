"""Layers that once handled empty inputs; torch's own do so now."""

import warnings

from mmcv.cnn.bricks import wrappers


def _deprecated(name: str) -> type:
    base = getattr(wrappers, name)

    class Deprecated(base):
        __doc__ = f"`mmcv.cnn.bricks.wrappers.{name}`, under its old name."

        def __init__(self, *args, **kwargs) -> None:
            super().__init__(*args, **kwargs)
            warnings.warn(
                f"mmcv.ops.{name} is deprecated: use torch.nn.{name}", DeprecationWarning, 2
            )

    Deprecated.__name__ = Deprecated.__qualname__ = f"{name}_deprecated"
    return Deprecated


Conv2d = Conv2d_deprecated = _deprecated("Conv2d")
ConvTranspose2d = ConvTranspose2d_deprecated = _deprecated("ConvTranspose2d")
Linear = Linear_deprecated = _deprecated("Linear")
MaxPool2d = MaxPool2d_deprecated = _deprecated("MaxPool2d")
