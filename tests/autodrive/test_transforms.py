"""The image pipeline against the official numbers, and its edges."""

from pathlib import Path

import cv2
import numpy as np
import pytest
import torch

from autodrive.data.transforms import (
    LoadMultiViewImages,
    NormalizeMultiView,
    PadMultiView,
    PhotometricDistortionMultiView,
    ScaleMultiView,
    read_image,
)
from autodrive.geometry.projection import project_points
from tests.autodrive.small_data import write_image

DATA = Path(__file__).parents[1] / "data" / "bevformer"
IMAGENET_RGB = NormalizeMultiView((123.675, 116.28, 103.53), (58.395, 57.12, 57.375), to_rgb=True)
CAFFE_BGR = NormalizeMultiView((103.53, 116.28, 123.675), (1, 1, 1), to_rgb=False)
PIPELINES = {
    "image_tiny_90x160": [IMAGENET_RGB, ScaleMultiView(0.5), PadMultiView(32)],
    "image_small_90x160": [CAFFE_BGR, ScaleMultiView(0.8), PadMultiView(32)],
    "image_base_50x70": [CAFFE_BGR, PadMultiView(32)],
}


@pytest.mark.parametrize("name", PIPELINES)
def test_images_and_projections_are_the_official_ones(name):
    with np.load(DATA / f"{name}.npz") as arrays:
        case = dict(arrays)
    frame = {"img": list(case["in_img"]), "lidar2img": case["in_lidar2img"]}
    for transform in PIPELINES[name]:
        frame = transform(frame)
    images = np.stack(frame["img"]).transpose(0, 3, 1, 2)
    assert images.dtype == np.float32
    np.testing.assert_allclose(images, case["out_img"], rtol=0, atol=1e-3)
    np.testing.assert_allclose(frame["lidar2img"], case["out_lidar2img"], rtol=1e-9)
    assert frame["img_shape"] == tuple(case["out_img_shape"][0][:2])


class GivenDraws:
    """In place of a numpy Generator: gives recorded numbers, and insists on the order of the kinds."""

    COIN, UNIFORM, PERMUTATION = range(3)

    def __init__(self, kinds: np.ndarray, values: np.ndarray) -> None:
        self.left = list(zip(kinds.tolist(), values.tolist()))

    def _next(self, kind: int) -> float:
        found, value = self.left.pop(0)
        assert found == kind
        return value

    def integers(self, high: int) -> int:
        assert high == 2
        return int(self._next(self.COIN))

    def uniform(self, low: float, high: float) -> float:
        value = self._next(self.UNIFORM)
        assert low <= value <= high
        return value

    def permutation(self, size: int) -> np.ndarray:
        return np.array([int(self._next(self.PERMUTATION)) for _ in range(size)])


@pytest.mark.parametrize("seed", range(6))
def test_photometric_distortion_is_the_official_one(seed):
    with np.load(DATA / "photometric_6.npz") as case:
        rng = GivenDraws(case[f"in_draw_kind_{seed}"], case[f"in_draw_value_{seed}"])
        found = PhotometricDistortionMultiView().distort(case["in_img"], rng)
        np.testing.assert_allclose(found, case[f"out_img_{seed}"], rtol=0, atol=1e-2)
    assert not rng.left


def test_distortion_goes_to_hsv_and_back_below_zero():
    """As in the published training; above zero that changes nothing, below it does."""
    image = np.full((2, 2, 3), (3.0, 10.0, 20.0), dtype=np.float32)
    draws = [(0, 1), (1, -30.0), (0, 1), (0, 0), (0, 0), (0, 0), (0, 0)]  # darker by 30, no more
    found = PhotometricDistortionMultiView().distort(image, GivenDraws(*np.array(draws).T))
    there = cv2.cvtColor(image - 30, cv2.COLOR_BGR2HSV)
    np.testing.assert_array_equal(found, cv2.cvtColor(there, cv2.COLOR_HSV2BGR))
    assert np.abs(found - (image - 30)).max() > 1


def test_distortion_of_each_camera_is_its_own_and_leaves_the_input():
    image = np.random.default_rng(0).integers(0, 255, (6, 8, 3), dtype=np.uint8)
    kept = image.copy()
    frame = {"img": [image] * 6, "rng": np.random.default_rng(1)}
    found = PhotometricDistortionMultiView()(frame)["img"]
    np.testing.assert_array_equal(image, kept)
    assert all(np.abs(found[0] - other).max() > 1 for other in found[1:])


def frame_of(paths) -> dict:
    return {"img_path": [str(p) for p in paths], "lidar2img": np.stack([np.eye(4)] * len(paths))}


def test_loading_gives_bgr_bytes_and_scales_projections_with_images(tmp_path):
    path = tmp_path / "a.png"
    cv2.imwrite(str(path), np.full((18, 32, 3), (1, 2, 3), dtype=np.uint8))
    whole = LoadMultiViewImages()(frame_of([path]))
    assert whole["img"][0].dtype == np.uint8 and whole["img_shape"] == (18, 32)
    np.testing.assert_array_equal(whole["img"][0][0, 0], (1, 2, 3))
    np.testing.assert_array_equal(whole["lidar2img"][0], np.eye(4))
    half = LoadMultiViewImages(width=16)(frame_of([path]))
    assert half["img_shape"] == half["img"][0].shape[:2] == (9, 16)
    np.testing.assert_array_equal(half["lidar2img"][0], np.diag([0.5, 0.5, 1, 1]))


def test_cached_images_survive_the_pipeline_and_the_file(tmp_path):
    path = tmp_path / "a.jpg"
    write_image(path)
    load = LoadMultiViewImages(width=16, cache=True)
    first = load(frame_of([path]))
    kept = first["img"][0].copy()
    first["rng"] = np.random.default_rng(0)
    for transform in (PhotometricDistortionMultiView(), IMAGENET_RGB, PadMultiView(32)):
        first = transform(first)
    path.unlink()
    second = load(frame_of([path]))
    np.testing.assert_array_equal(second["img"][0], kept)
    np.testing.assert_array_equal(second["lidar2img"][0], np.diag([0.5, 0.5, 1, 1]))


@pytest.mark.parametrize("damage", ["half", "zero tail", "text", "empty"])
def test_damaged_image_is_named(tmp_path, damage):
    path = tmp_path / "broken.jpg"
    write_image(path, size=(90, 160))
    content = path.read_bytes()
    half = len(content) // 2
    path.write_bytes(
        {
            "half": content[:half],
            "zero tail": content[:half] + bytes(half),
            "text": b"<html>not found</html>",
            "empty": b"",
        }[damage]
    )
    with pytest.raises(ValueError, match=r"broken\.jpg is damaged: \d+ bytes"):
        read_image(str(path))


def test_truncated_jpeg_is_found_although_its_thumbnail_is_whole(tmp_path):
    write_image(tmp_path / "a.jpg", size=(90, 160))
    write_image(tmp_path / "thumbnail.jpg")
    picture = (tmp_path / "a.jpg").read_bytes()
    thumbnail = (tmp_path / "thumbnail.jpg").read_bytes()
    segment = b"\xff\xe1" + (len(thumbnail) + 2).to_bytes(2, "big") + thumbnail
    content = picture[:2] + segment + picture[2:] + b"trailing bytes" * 10
    path = tmp_path / "b.jpg"
    path.write_bytes(content)
    assert read_image(str(path)).shape == (90, 160, 3)
    path.write_bytes(content[: len(content) // 2])
    with pytest.raises(ValueError, match=r"b\.jpg is damaged"):
        read_image(str(path))


def test_missing_image_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"none\.jpg cannot be read: No such file"):
        LoadMultiViewImages()(frame_of([tmp_path / "none.jpg"]))


def test_cameras_of_different_size_are_named(tmp_path):
    write_image(tmp_path / "a.jpg")
    write_image(tmp_path / "b.jpg", size=(20, 32))
    with pytest.raises(ValueError, match=r"b\.jpg is 32x20, and .*a\.jpg is 32x18"):
        LoadMultiViewImages()(frame_of([tmp_path / "a.jpg", tmp_path / "b.jpg"]))


def test_projections_are_divided_by_the_padded_size():
    """K54: 900 x 1600 padded to 928 x 1600, a point that projects to pixel (800, 450)."""
    frame = {
        "img": [np.zeros((900, 1600, 3), dtype=np.float32)],
        "lidar2img": np.array([[[1e3, 0, 800, 0], [0, 1e3, 450, 0], [0, 0, 1, 0], [0, 0, 0, 1]]]),
    }
    frame = PadMultiView(32)(frame)
    assert frame["img_shape"] == (928, 1600)
    point = torch.tensor([[0.0, 0.0, 10.0]])
    projection = torch.from_numpy(frame["lidar2img"])[None]
    uv, visible = project_points(point, projection, frame["img_shape"])
    np.testing.assert_allclose(uv[0, 0, 0], (0.5, 450 / 928), rtol=1e-6)
    assert visible.all()
