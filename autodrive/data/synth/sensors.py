"""The sensors of the ego: where they are mounted, what the cameras' lenses are, and when they take their data.

The layout is that of nuScenes, with the small mounting errors that real vehicles have. The ego frame has its origin
under the middle of the rear axle, x forward, y left, z up; a camera's frame x right, y down, z forward; the lidar's
x right, y forward, z up.
"""

from dataclasses import dataclass

import numpy as np
from pyquaternion import Quaternion

REFERENCE_SIZE = (1600, 900)  # px, of the cameras of nuScenes; the focal lengths below belong to it
# name: position in the ego frame (m), yaw of the view (degrees), focal length (px), trigger after the lidar's (µs):
# a camera is triggered when the lidar's beam passes its view, the lidar's time is the end of its turn.
CAMERA_MOUNTS = {
    "CAM_FRONT": ((1.70, 0.0, 1.51), 0.0, 1262.0, -35_500),
    "CAM_FRONT_RIGHT": ((1.55, -0.49, 1.50), -56.0, 1262.0, -27_600),
    "CAM_FRONT_LEFT": ((1.52, 0.49, 1.51), 55.0, 1262.0, -43_100),
    "CAM_BACK": ((0.03, 0.0, 1.58), 180.0, 805.0, -10_400),
    "CAM_BACK_LEFT": ((1.03, 0.48, 1.59), 109.0, 1258.0, -500),
    "CAM_BACK_RIGHT": ((1.02, -0.48, 1.56), -110.0, 1258.0, -20_100),
}
LIDAR_POSITION = (0.94, 0.0, 1.84)


@dataclass(frozen=True)
class Sensor:
    """A mounted sensor.

    Attributes:
        to_ego: (4, 4) sensor to ego.
        intrinsic: (3, 3) px; pixel centres are at whole numbers. None for the lidar.
        delay: of its data against the lidar's, µs.
    """

    name: str
    to_ego: np.ndarray
    intrinsic: np.ndarray | None
    delay: int


def make_sensors(rng: np.random.Generator, image_size: tuple[int, int]) -> list[Sensor]:
    """The lidar and the six cameras of one vehicle, for images of (width, height) px."""
    scale = np.array(image_size) / REFERENCE_SIZE
    turned = np.array([[0.0, 1, 0], [-1, 0, 0], [0, 0, 1]])
    sensors = [Sensor("LIDAR_TOP", _mount(rng, turned, LIDAR_POSITION), None, 0)]
    for name, (position, yaw, focal, delay) in CAMERA_MOUNTS.items():
        cos, sin = np.cos(np.radians(yaw)), np.sin(np.radians(yaw))
        rotation = np.array([[sin, 0, cos], [-cos, 0, sin], [0, -1, 0]])
        middle = np.array([808.0, 486.0]) + rng.uniform(-12, 12, size=2)
        focal *= rng.uniform(0.995, 1.005)
        fx, fy = focal * scale
        cx, cy = middle * scale
        intrinsic = np.array([[fx, 0, cx], [0, fy, cy], [0, 0, 1]])
        sensors.append(Sensor(name, _mount(rng, rotation, position), intrinsic, delay))
    return sensors


def pose_matrix(pose: np.ndarray) -> np.ndarray:
    """(4, 4) ego to global from x, y (m), yaw (rad)."""
    x, y, yaw = pose
    cos, sin = np.cos(yaw), np.sin(yaw)
    return np.array([[cos, -sin, 0, x], [sin, cos, 0, y], [0, 0, 1, 0], [0, 0, 0, 1]])


def _mount(rng: np.random.Generator, rotation: np.ndarray, position: tuple) -> np.ndarray:
    """(4, 4), turned by about 0.3 degrees and moved by about 1 cm at random."""
    error = Quaternion(axis=rng.standard_normal(3), degrees=rng.normal(0, 0.3)).rotation_matrix
    matrix = np.eye(4)
    matrix[:3, :3] = error @ rotation
    matrix[:3, 3] = np.array(position) + rng.normal(0, 0.01, size=3)
    return matrix
