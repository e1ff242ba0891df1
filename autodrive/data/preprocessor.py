"""The last steps of the image pipeline on the GPU: workers then hand over bytes, a quarter of what floats take."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from mmengine.model import BaseDataPreprocessor
from mmengine.registry import MODELS


@MODELS.register_module()
class MultiViewImagePreprocessor(BaseDataPreprocessor):
    """Normalises and pads 8-bit images, as `NormalizeMultiView` and `PadMultiView` do in a worker.

    Args:
        mean, std: in the order of the result, which is RGB with `to_rgb`.
        divisor: zeros at the bottom and the right, up to a multiple of this.
    """

    def __init__(
        self, mean: Sequence[float], std: Sequence[float], to_rgb: bool, divisor: int = 32
    ) -> None:
        super().__init__(non_blocking=True)
        self.register_buffer("mean", torch.tensor(mean).view(-1, 1, 1), persistent=False)
        self.register_buffer("std", torch.tensor(std).view(-1, 1, 1), persistent=False)
        self.to_rgb = to_rgb
        self.divisor = divisor

    def forward(self, data: dict, training: bool = False) -> dict:
        """`inputs["img"]`: tensors (T, N_cam, 3, h, w) uint8 BGR → float32 on the model's device.

        Data samples stay on the CPU: their many small tensors would each wait for the GPU.
        """
        images = self.cast_data(data["inputs"]["img"])
        return {**data, "inputs": {"img": [self._prepare(image) for image in images]}}

    def _prepare(self, image: torch.Tensor) -> torch.Tensor:
        if image.dtype != torch.uint8:
            raise TypeError(
                f"img must be uint8, got {image.dtype}: leave normalising to this class"
            )
        if self.to_rgb:
            image = image.flip(-3)
        image = (image.float() - self.mean) / self.std
        h, w = image.shape[-2:]
        return F.pad(image, (0, -w % self.divisor, 0, -h % self.divisor))
