"""Records a scene: writes the pictures and sweeps of some of its key frames and counts what was seen."""

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import cv2
import numpy as np

from autodrive.data.synth.cameras import GroundLevels, Picture, render
from autodrive.data.synth.ground import Ground
from autodrive.data.synth.lidar import sweep
from autodrive.data.synth.scene import Scene, Shot
from autodrive.data.synth.sensors import Sensor, pose_matrix
from autodrive.data.synth.solids import Solids, solids_at
from autodrive.data.synth.world import World

JPEG_QUALITY = 90
VIEW_RANGE = 110.0  # m from the ego, of what cameras show
SWEEP_RANGE = 80.0  # m, of what the lidar hits
GROUND_REACH = 110.0  # m around the drive


@dataclass(frozen=True)
class Seen:
    """What one key frame's sensors saw of each actor of the scene: (A,) integers.

    Attributes:
        lidar_points: inside the box.
        visible: pixels in all cameras.
        outline: pixels it would cover with nothing in front of it.
    """

    lidar_points: np.ndarray
    visible: np.ndarray
    outline: np.ndarray


@lru_cache(maxsize=1)
def _ground(scene: Scene) -> tuple[Ground, GroundLevels]:
    ground = Ground(scene.world, GROUND_REACH)
    return ground, GroundLevels(ground)


def record(scene: Scene, first: int, last: int, root: Path) -> list[Seen]:
    """Writes all files of key frames `first` to `last` - 1 below `root`, with the sweeps that lead to them."""
    cv2.setNumThreads(1)
    seen = []
    lidar, *cameras = scene.sensors
    for key_frame in range(first, last):
        points = np.zeros(len(scene.world.actors), int)
        for shot in scene.shots(lidar):
            if shot.key_frame == key_frame:
                cloud = _record_sweep(scene, lidar, shot, root)
                if shot.is_key_frame:
                    points = points_in_boxes(scene.world, shot.time * 1e-6, cloud)
        visible, outline = np.zeros((2, len(scene.world.actors)), int)
        for camera in cameras:
            picture = _record_picture(scene, camera, scene.shots(camera)[key_frame], root)
            outline += picture.outlines
            visible += np.bincount(picture.actors.ravel() + 1, minlength=len(visible) + 1)[1:]
        seen.append(Seen(points, visible, outline))
    return seen


def view(scene: Scene, sensor: Sensor, time: int, radius: float) -> tuple[Solids, np.ndarray]:
    """The solids around the ego, and the pose (4, 4) of a sensor in the global frame, at `time` µs of the scene.

    Objects are where they are at the time of the lidar: a real lidar's beam passes an object at the very time when the
    camera that looks there is triggered, so that boxes fit the pictures of moving objects. The ego's pose is that of
    the sensor's own time.
    """
    pose = scene.world.ego.pose(time * 1e-6)
    t = (time - sensor.delay) * 1e-6
    details = sensor.intrinsic is not None
    solids = solids_at(scene.world, t, pose[:2], radius, details)
    return solids, pose_matrix(pose) @ sensor.to_ego


def take_picture(scene: Scene, camera: Sensor, time: int) -> Picture:
    """The picture of a camera at `time` µs of the scene."""
    solids, to_global = view(scene, camera, time, VIEW_RANGE)
    levels = _ground(scene)[1]
    light, count = scene.world.light, len(scene.world.actors)
    return render(solids, levels, light, to_global, camera.intrinsic, scene.image_size, count)


def _record_picture(scene: Scene, camera: Sensor, shot: Shot, root: Path) -> Picture:
    picture = take_picture(scene, camera, shot.time)
    quality = [cv2.IMWRITE_JPEG_QUALITY, JPEG_QUALITY]
    _, content = cv2.imencode(".jpg", picture.image[..., ::-1], quality)
    (root / scene.filename(camera, shot)).write_bytes(content.tobytes())
    return picture


def _record_sweep(scene: Scene, lidar: Sensor, shot: Shot, root: Path) -> np.ndarray:
    """Writes a sweep; returns its points (n, 3) in the global frame, as they can be read from the file."""
    solids, to_global = view(scene, lidar, shot.time, SWEEP_RANGE)
    rng = np.random.default_rng([scene.seed, scene.index, 3, shot.time])
    points = sweep(solids, _ground(scene)[0], to_global, rng)
    (root / scene.filename(lidar, shot)).write_bytes(points.tobytes())
    return points[:, :3].astype(float) @ to_global[:3, :3].T + to_global[:3, 3]


def points_in_boxes(world: World, t: float, points: np.ndarray) -> np.ndarray:
    """(A,) how many of the global points (n, 3) are inside each actor's box at time `t` s."""
    points = points[np.argsort(points[:, 0], kind="stable")]
    counts = np.zeros(len(world.actors), int)
    for i, (x, y, yaw) in enumerate(world.poses(t)[0]):
        width, length, height = world.actors[i].size
        reach = np.hypot(width, length) / 2
        first, last = np.searchsorted(points[:, 0], [x - reach, x + reach])
        offset, z = points[first:last, :2] - [x, y], points[first:last, 2]
        along, across = offset @ [np.cos(yaw), np.sin(yaw)], offset @ [-np.sin(yaw), np.cos(yaw)]
        inside = (np.abs(along) <= length / 2) & (np.abs(across) <= width / 2)
        counts[i] = np.count_nonzero(inside & (z >= 0) & (z <= height))
    return counts
