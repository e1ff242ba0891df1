"""Six cameras with the boxes of predictions and ground truth."""

from collections.abc import Sequence

import cv2
import numpy as np

from autodrive.data.classes import CAMERAS, CLASSES
from autodrive.data.transforms import read_image

from .boxes import EDGES, SceneBoxes, corners
from .colors import bgr

NEAR = 0.1  # m; edges are cut at this depth
# The mosaic as one would stand in the car: front above, back below.
ROWS = (
    ("CAM_FRONT_LEFT", "CAM_FRONT", "CAM_FRONT_RIGHT"),
    ("CAM_BACK_RIGHT", "CAM_BACK", "CAM_BACK_LEFT"),
)
DASH = 6  # px
LEGEND_HEIGHT = 26  # px


def camera_picture(
    img_paths: Sequence[str],
    lidar2img: np.ndarray,
    predicted: SceneBoxes | None = None,
    truth: SceneBoxes | None = None,
    width: int = 1920,
) -> np.ndarray:
    """A mosaic (h, `width`, 3) uint8 BGR: predictions solid, ground truth dashed white; below, the classes' colours.

    Args:
        img_paths: of the cameras in the order of `CAMERAS`.
        lidar2img: (N_cam, 4, 4) for the image files.
    """
    tiles = {}
    for name, path, projection in zip(CAMERAS, img_paths, lidar2img):
        image = read_image(path)
        scale = width / 3 / image.shape[1]
        size = (width // 3, round(image.shape[0] * scale))
        image = cv2.resize(image, size, interpolation=cv2.INTER_AREA)
        projection = np.diag([scale, scale, 1, 1]) @ projection
        if truth is not None:
            draw_boxes(image, projection, truth, dashed=True)
        if predicted is not None:
            draw_boxes(image, projection, predicted)
        _write(image, name, (8, 18), (0, 0, 0), thickness=3)
        _write(image, name, (8, 18), (255, 255, 255))
        tiles[name] = image
    rows = [np.concatenate([tiles[name] for name in row], axis=1) for row in ROWS]
    return np.concatenate([*rows, _legend(rows[0].shape[1])], axis=0)


def _legend(width: int) -> np.ndarray:
    strip = np.full((LEGEND_HEIGHT, width, 3), 255, np.uint8)
    step = width / len(CLASSES)
    for i, name in enumerate(CLASSES):
        left = round(i * step) + 6
        cv2.rectangle(strip, (left, 7), (left + 12, 19), bgr(name), -1)
        _write(strip, name.replace("_", " "), (left + 18, 18), (40, 40, 40), scale=width / 4600)
    return strip


def _write(image, text, place, color, scale: float = 0.5, thickness: int = 1) -> None:
    cv2.putText(image, text, place, cv2.FONT_HERSHEY_SIMPLEX, scale, color, thickness, cv2.LINE_AA)


def draw_boxes(
    image: np.ndarray, lidar2img: np.ndarray, scene: SceneBoxes, dashed: bool = False
) -> None:
    """Draws boxes into an image, in place; the front face of a predicted box has a cross."""
    h, w = image.shape[:2]
    for box, name in zip(corners(scene.boxes), scene.names):
        color = (255, 255, 255) if dashed else bgr(name)
        edges = [*EDGES] if dashed else [*EDGES, (0, 5), (1, 4)]
        for a, b in edges:
            line = project_segment(box[a], box[b], lidar2img)
            if line is None:
                continue
            clipped, start, end = cv2.clipLine((0, 0, w, h), *line)
            if not clipped:
                continue
            if dashed:
                _dashed_line(image, start, end, color)
            else:
                cv2.line(image, start, end, color, 1, cv2.LINE_AA)


def project_segment(
    a: np.ndarray, b: np.ndarray, lidar2img: np.ndarray
) -> tuple[tuple[int, int], tuple[int, int]] | None:
    """End points in pixels of the part of a segment (lidar frame, m) that is in front of the camera, if any."""
    ends = np.stack([a, b]) @ lidar2img[:3, :3].T + lidar2img[:3, 3]
    depth = ends[:, 2]
    if (depth < NEAR).all():
        return None
    for i, j in ((0, 1), (1, 0)):
        if depth[i] < NEAR:
            ends[i] += (NEAR - depth[i]) / (depth[j] - depth[i]) * (ends[j] - ends[i])
    # Far outside the image coordinates would overflow; the direction of the line stays right.
    pixels = np.clip(ends[:, :2] / ends[:, 2:], -1e6, 1e6).round().astype(int)
    return tuple(pixels[0].tolist()), tuple(pixels[1].tolist())


def _dashed_line(
    image: np.ndarray, start: tuple[int, int], end: tuple[int, int], color: tuple[int, int, int]
) -> None:
    a, b = np.array(start, float), np.array(end, float)
    pieces = max(1, int(np.linalg.norm(b - a) / DASH))
    for i in range(0, pieces, 2):
        p, q = a + (b - a) * i / pieces, a + (b - a) * min(i + 1, pieces) / pieces
        cv2.line(image, tuple(p.astype(int)), tuple(q.astype(int)), color, 1, cv2.LINE_AA)
