"""A scene seen from a frame of reference that is mirrored or turned: more scenes from few.

The same for all frames of a queue, so that the vehicle's motion stays consistent (as in BEVDet, arXiv 2112.11790,
section 3.3, there for single frames).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from pyquaternion import Quaternion

from .classes import CAMERAS


def _opposite(camera: str) -> str:
    for side, other in (("LEFT", "RIGHT"), ("RIGHT", "LEFT")):
        if camera.endswith(side):
            return camera.removesuffix(side) + other
    return camera


# The camera on the other side of the vehicle, for each camera.
OPPOSITE = [CAMERAS.index(_opposite(camera)) for camera in CAMERAS]


@dataclass(frozen=True)
class SceneTransform:
    """Lidar frame → (mirrored, left for right) → turned counter-clockwise about z by `angle`, rad."""

    mirrored: bool = False
    angle: float = 0.0

    @classmethod
    def draw(cls, rng: np.random.Generator, mirror: bool, max_degrees: float) -> "SceneTransform":
        """Mirrored half of the time, if at all; the angle is uniform in ±`max_degrees`."""
        mirrored = mirror and bool(rng.integers(2))
        return cls(mirrored, np.deg2rad(rng.uniform(-max_degrees, max_degrees)))

    def matrix(self, sideways: int) -> np.ndarray:
        """(3, 3) old to new coordinates, where axis `sideways` points to the right or to the left."""
        cos, sin = np.cos(self.angle), np.sin(self.angle)
        turn = np.array([[cos, -sin, 0], [sin, cos, 0], [0, 0, 1]])
        mirror = np.eye(3)
        mirror[sideways, sideways] = -1 if self.mirrored else 1
        return turn @ mirror

    def frame(self, frame: dict) -> dict:
        """`img`, `lidar2img` of one frame (see `transforms`); a mirrored image belongs to the camera opposite."""
        inverse = np.eye(4)
        inverse[:3, :3] = self.matrix(sideways=0).T
        images, projections = frame["img"], frame["lidar2img"] @ inverse
        if self.mirrored:
            images = [images[i][:, ::-1] for i in OPPOSITE]
            flip = np.eye(4)
            flip[0, :3] = [-1, 0, images[0].shape[1]]  # u → width - u, in homogeneous coordinates
            projections = flip @ projections[OPPOSITE]
        return {**frame, "img": images, "lidar2img": projections}

    def pose(
        self, translation: Sequence[float], rotation: Sequence[float]
    ) -> tuple[np.ndarray, np.ndarray]:
        """Ego to global: m, and quaternion (w, x, y, z); the world is mirrored in its x-z plane."""
        translation = np.array(translation, dtype=np.float64)
        w, x, y, z = rotation
        if self.mirrored:
            translation[1] *= -1
            x, z = -x, -z
        turned = Quaternion(w, x, y, z) * Quaternion(axis=[0, 0, 1], radians=-self.angle)
        return translation, turned.elements

    def can_bus(self, stored: np.ndarray) -> np.ndarray:
        """The vector of an info file: acceleration, rotation rate and velocity in ego axes (x forward, y left)."""
        result = np.array(stored, dtype=np.float64)
        mirror = np.diag([1.0, -1.0 if self.mirrored else 1.0, 1.0])
        cos, sin = np.cos(self.angle), np.sin(self.angle)
        change = np.array([[cos, -sin, 0], [sin, cos, 0], [0, 0, 1]]) @ mirror
        for part, sign in (
            (slice(7, 10), 1),
            (slice(10, 13), np.linalg.det(mirror)),
            (slice(13, 16), 1),
        ):
            result[part] = sign * (change @ result[part])  # a rotation rate is a pseudovector
        return result

    def boxes(self, boxes: np.ndarray) -> np.ndarray:
        """Lidar boxes (n, 9): x, y, z_bottom, l, w, h, yaw, vx, vy."""
        result = boxes.copy()
        result[:, :3] = boxes[:, :3] @ self.matrix(sideways=0).T
        result[:, 7:9] = boxes[:, 7:9] @ self.matrix(sideways=0)[:2, :2].T
        yaw = np.pi - boxes[:, 6] if self.mirrored else boxes[:, 6]
        result[:, 6] = (yaw + self.angle + np.pi) % (2 * np.pi) - np.pi
        return result


UNCHANGED = SceneTransform()
