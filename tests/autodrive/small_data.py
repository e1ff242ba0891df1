"""Info files, a few pixels of images, and key-frame folders, written by hand for tests."""

import pickle
from collections.abc import Sequence
from pathlib import Path

import cv2
import numpy as np
from pyquaternion import Quaternion

from autodrive.data.classes import CAMERAS, CLASSES
from autodrive.data.files import write_pickle
from autodrive.data.info import info_path

SIZE = (18, 32)  # h, w in pixels


def instance(
    name: str = "car",
    xyz: Sequence[float] = (10.0, 5.0, -1.0),
    yaw: float = 0.3,
    velocity: Sequence[float] = (1.0, 0.0),
    points: int = 5,
    categories: Sequence[str] = CLASSES,
) -> dict:
    """A box of 4 x 2 x 1.5 m, its centre at `xyz`."""
    return {
        "bbox_3d": [*xyz, 4.0, 2.0, 1.5, yaw],
        "bbox_label_3d": categories.index(name) if name in categories else -1,
        "bbox_3d_isvalid": points > 0,
        "num_lidar_pts": points,
        "num_radar_pts": 0,
        "velocity": list(velocity),
    }


def pose(x: float = 0.0, y: float = 0.0, yaw: float = 0.0) -> np.ndarray:
    """(4, 4) on the ground."""
    matrix = Quaternion(axis=[0, 0, 1], angle=yaw).transformation_matrix
    matrix[:2, 3] = x, y
    return matrix


def camera_info(index: int, img_path: str) -> dict:
    """A camera that looks along its sixth of the circle."""
    angle = index * np.pi / 3
    right, forward = [np.cos(angle), -np.sin(angle), 0], [np.sin(angle), np.cos(angle), 0]
    lidar2cam = np.eye(4)
    lidar2cam[:3, :3] = [right, [0, 0, -1], forward]
    return {
        "img_path": img_path,
        "cam2img": [[25.0, 0.0, 16.0], [0.0, 25.0, 9.0], [0.0, 0.0, 1.0]],
        "cam2ego": np.linalg.inv(lidar2cam),
        "lidar2cam": lidar2cam,
        "timestamp": 0.0,
        "sample_data_token": f"camera {index}",
    }


def write_image(path: Path, seed: int = 0, size: tuple[int, int] = SIZE) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    image = np.random.default_rng(seed).integers(0, 255, (*size, 3), dtype=np.uint8)
    assert cv2.imwrite(str(path), image)


def write_prepared(
    root: Path,
    scenes: dict[str, list[list[dict]]],
    split: str = "train",
    categories: Sequence[str] = CLASSES,
    can_bus_valid: bool = True,
) -> list[dict]:
    """A prepared data root: scene token → instances of each of its frames, half a second apart.

    Every frame has its own images, and the ego is at (10 · number of the frame in the list, 0), turned by that many
    degrees. Returns the infos.
    """
    infos: list[dict] = []
    for scene, frames in scenes.items():
        for frame_idx, instances in enumerate(frames):
            number = len(infos)
            images = {}
            for index, camera in enumerate(CAMERAS):
                name = f"samples/{camera}/{number}.jpg"
                write_image(root / name, seed=10 * number + index)
                images[camera] = camera_info(index, name)
            can_bus = np.zeros(18)
            can_bus[7:16] = number + np.arange(9) / 10
            ego2global = pose(10.0 * number, 0.0, np.radians(number))
            infos.append(
                {
                    "sample_idx": number,
                    "token": f"sample {number}",
                    "timestamp": 1e9 + number / 2,
                    "scene_token": scene,
                    "scene_name": scene,
                    "frame_idx": frame_idx,
                    "prev": f"sample {number - 1}" if frame_idx else "",
                    "next": f"sample {number + 1}" if frame_idx + 1 < len(frames) else "",
                    "ego2global": ego2global,
                    "ego2global_rotation": list(Quaternion(matrix=ego2global)),
                    "can_bus": can_bus,
                    "can_bus_valid": can_bus_valid,
                    "lidar_points": {
                        "num_pts_feats": 5,
                        "lidar_path": f"samples/LIDAR_TOP/{number}.pcd.bin",
                        "lidar2ego": pose(1.0, 0.0, -np.pi / 2),
                    },
                    "lidar_sweeps": [],
                    "images": images,
                    "instances": instances,
                }
            )
    metainfo = {
        "categories": {name: number for number, name in enumerate(categories)},
        "dataset": "nuscenes",
        "version": "v1.0-mini",
        "info_version": "1.1",
        "split": split,
        "eval_set": f"mini_{split}",
    }
    write_pickle(info_path(root, split), {"metainfo": metainfo, "data_list": infos})
    return infos


def key_frame(instances: list[dict], categories: Sequence[str]) -> dict:
    """What the pickle of a key-frame folder holds: mmdet3d's info format, one sample, nothing of time."""
    images = {camera: camera_info(i, f"{camera}.jpg") for i, camera in enumerate(CAMERAS)}
    sample = {
        "sample_idx": 0,
        "token": "frame",
        "timestamp": np.float64(1532402927.647951),
        "ego2global": pose(600.0, 1600.0, 2.0).tolist(),
        "lidar_points": {
            "num_pts_feats": 5,
            "lidar_path": "sweep.pcd.bin",
            "lidar2ego": pose(1.0, 0.0, -np.pi / 2).tolist(),
        },
        "images": images,
        "instances": instances,
    }
    numbers = {name: number for number, name in enumerate(categories)}
    metainfo = {"categories": numbers, "version": "v1.0-mini", "info_version": "1.1"}
    return {"metainfo": metainfo, "data_list": [sample]}


def write_key_frame(
    folder: Path, instances: list[dict], categories: Sequence[str] = CLASSES
) -> dict:
    """A key-frame folder; returns what its pickle holds."""
    content = key_frame(instances, categories)
    for index, camera in enumerate(CAMERAS):
        write_image(folder / f"{camera}.jpg", seed=index)
    points = np.random.default_rng(0).random((50, 5), dtype=np.float32)
    points.tofile(folder / "sweep.pcd.bin")
    (folder / "frame.pkl").write_bytes(pickle.dumps(content))
    return content
