"""From image files to what a network sees. Every transform takes and returns one frame:

img_path      list of N_cam paths                       img        list of N_cam arrays (h, w, 3), BGR
lidar2img     (N_cam, 4, 4) float64, for the pixels of `img`
img_shape     (h, w) of `img`, padding included         rng        numpy Generator of this frame
"""

from collections.abc import Sequence

import cv2
import numpy as np
from mmengine.registry import TRANSFORMS

Frame = dict


def read_image(path: str) -> np.ndarray:
    """An image file as (h, w, 3) uint8, BGR; ValueError naming the file if it is missing or damaged."""
    try:
        with open(path, "rb") as file:
            content = file.read()
    except OSError as error:
        raise FileNotFoundError(f"image {path} cannot be read: {error.strerror}") from None
    image = None
    if content and not _is_truncated_jpeg(content):
        image = cv2.imdecode(np.frombuffer(content, dtype=np.uint8), cv2.IMREAD_COLOR)
    if image is None:
        raise ValueError(f"image {path} is damaged: {len(content)} bytes that are no whole image")
    return image


def _is_truncated_jpeg(content: bytes) -> bool:
    """Decoders fill what is missing with grey and only warn, but the picture's data (after the last "start of scan")
    must be closed by an "end of image"."""
    start = content.rfind(b"\xff\xda")
    return content.startswith(b"\xff\xd8") and b"\xff\xd9" not in content[max(start, 0) :]


def scale_image(image: np.ndarray, scale: float) -> np.ndarray:
    h, w = image.shape[:2]
    size = (int(w * scale), int(h * scale))
    return cv2.resize(image, size, interpolation=cv2.INTER_LINEAR)


def scale_projection(lidar2img: np.ndarray, scale: float) -> np.ndarray:
    """lidar2img (N_cam, 4, 4) for images of another size."""
    return np.diag([scale, scale, 1.0, 1.0]) @ lidar2img


@TRANSFORMS.register_module()
class LoadMultiViewImages:
    """Reads the images of all cameras.

    Args:
        width: scale every image to this many pixels at once, with `lidar2img`; None keeps their size. Scaling here,
            on 8-bit images, is much cheaper than `ScaleMultiView` but not bit-equal to it.
        cache: keep the decoded images in memory, for datasets that fit: each worker has its own copy.
    """

    def __init__(self, width: int | None = None, cache: bool = False) -> None:
        self.width = width
        self.cache: dict[str, tuple[np.ndarray, float]] | None = {} if cache else None

    def __call__(self, frame: Frame) -> Frame:
        loaded = [self._load(path) for path in frame["img_path"]]
        frame["img"] = [image for image, _ in loaded]
        for path, image in zip(frame["img_path"], frame["img"]):
            if image.shape != frame["img"][0].shape:
                sizes = [f"{i.shape[1]}x{i.shape[0]}" for i in (image, frame["img"][0])]
                raise ValueError(
                    f"image {path} is {sizes[0]}, and {frame['img_path'][0]} is {sizes[1]}: all cameras must have "
                    "images of one size"
                )
        frame["lidar2img"] = np.stack(
            [
                scale_projection(projection, scale)
                for projection, (_, scale) in zip(frame["lidar2img"], loaded)
            ]
        )
        frame["img_shape"] = frame["img"][0].shape[:2]
        return frame

    def _load(self, path: str) -> tuple[np.ndarray, float]:
        if self.cache is not None and path in self.cache:
            return self.cache[path]
        image = read_image(path)
        scale = 1.0 if self.width is None else self.width / image.shape[1]
        if scale != 1:
            size = (self.width, round(image.shape[0] * scale))
            image = cv2.resize(image, size, interpolation=cv2.INTER_AREA)
        if self.cache is not None:
            self.cache[path] = (image, scale)
        return image, scale


@TRANSFORMS.register_module()
class PhotometricDistortionMultiView:
    """Random brightness, contrast, saturation, hue and channel order, for each camera on its own.

    Every step happens with probability 1/2; values stay floating point and are not clipped (BEVFormer's training
    recipe; the steps are SSD's, Liu et al. 2016, section 2.2).
    """

    def __init__(
        self,
        brightness_delta: float = 32,
        contrast_range: tuple[float, float] = (0.5, 1.5),
        saturation_range: tuple[float, float] = (0.5, 1.5),
        hue_delta: float = 18,
    ) -> None:
        self.brightness_delta = brightness_delta
        self.contrast_range = contrast_range
        self.saturation_range = saturation_range
        self.hue_delta = hue_delta

    def __call__(self, frame: Frame) -> Frame:
        frame["img"] = [self.distort(image, frame["rng"]) for image in frame["img"]]
        return frame

    def distort(self, image: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """image (h, w, 3) BGR, 0...255 → float32.

        Draws from `rng`, in this order: `integers(2)` for every coin, `uniform(low, high)` for every amount, at the
        end `permutation(3)`.
        """
        image = image.astype(np.float32)
        if rng.integers(2):
            image += np.float32(rng.uniform(-self.brightness_delta, self.brightness_delta))
        contrast_first = rng.integers(2)
        if contrast_first and rng.integers(2):
            image *= np.float32(rng.uniform(*self.contrast_range))
        saturation = rng.uniform(*self.saturation_range) if rng.integers(2) else None
        hue = rng.uniform(-self.hue_delta, self.hue_delta) if rng.integers(2) else None
        # The recipe always goes to HSV and back; only below 0 is that not the identity.
        if saturation is not None or hue is not None or image.min() < 0:
            image = self._shift_colour(image, saturation, hue)
        if not contrast_first and rng.integers(2):
            image *= np.float32(rng.uniform(*self.contrast_range))
        if rng.integers(2):
            image = image[..., rng.permutation(3)]
        return image

    @staticmethod
    def _shift_colour(image: np.ndarray, saturation: float | None, hue: float | None) -> np.ndarray:
        hsv = cv2.cvtColor(image, cv2.COLOR_BGR2HSV)
        if saturation is not None:
            hsv[..., 1] *= np.float32(saturation)
        if hue is not None:
            hsv[..., 0] += np.float32(hue)
            hsv[..., 0] %= 360
        return cv2.cvtColor(hsv, cv2.COLOR_HSV2BGR)


@TRANSFORMS.register_module()
class NormalizeMultiView:
    """(image - mean) / std, float32; mean and std in the order of the result, which is RGB with `to_rgb`."""

    def __init__(self, mean: Sequence[float], std: Sequence[float], to_rgb: bool) -> None:
        self.mean = np.array(mean, dtype=np.float32)
        self.factor = 1 / np.array(std, dtype=np.float32)
        self.to_rgb = to_rgb

    def __call__(self, frame: Frame) -> Frame:
        frame["img"] = [self._normalize(image) for image in frame["img"]]
        return frame

    def _normalize(self, image: np.ndarray) -> np.ndarray:
        if self.to_rgb:
            image = image[..., ::-1]
        return (image.astype(np.float32) - self.mean) * self.factor


@TRANSFORMS.register_module()
class ScaleMultiView:
    """Scales images by a factor, bilinear, and `lidar2img` with them."""

    def __init__(self, scale: float) -> None:
        self.scale = scale

    def __call__(self, frame: Frame) -> Frame:
        frame["img"] = [scale_image(image, self.scale) for image in frame["img"]]
        frame["lidar2img"] = scale_projection(frame["lidar2img"], self.scale)
        frame["img_shape"] = frame["img"][0].shape[:2]
        return frame


@TRANSFORMS.register_module()
class PadMultiView:
    """Zeros at the bottom and the right, up to a multiple of `divisor`; projections stay as they are."""

    def __init__(self, divisor: int = 32) -> None:
        self.divisor = divisor

    def __call__(self, frame: Frame) -> Frame:
        frame["img"] = [self._pad(image) for image in frame["img"]]
        frame["img_shape"] = frame["img"][0].shape[:2]
        return frame

    def _pad(self, image: np.ndarray) -> np.ndarray:
        h, w = image.shape[:2]
        bottom, right = -h % self.divisor, -w % self.divisor
        return cv2.copyMakeBorder(image, 0, bottom, 0, right, cv2.BORDER_CONSTANT, value=0)
