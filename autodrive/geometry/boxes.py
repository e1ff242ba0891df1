"""Boxes between three conventions: the networks' ten numbers, mmdet3d's lidar boxes, nuScenes'
global boxes.

Lidar frame: x right, y forward, z up (nuScenes). A *lidar box* has the nine numbers of mmdet3d 1.x
`LiDARInstance3DBoxes`: (x, y, z_bottom, l, w, h, yaw, vx, vy), yaw counter-clockwise from +x,
radians, metres, m/s. A *network box* has ten numbers, in which BEVFormer predicts and computes its
losses: (cx, cy, ln w, ln l, cz, ln h, sin θ, cos θ, vx, vy) with cz the centre of gravity and θ =
-yaw - π/2, the yaw of mmdet3d 0.17 in which the public checkpoints were trained.
"""

from dataclasses import dataclass

import numpy as np
import torch
from scipy.spatial.transform import Rotation
from torch import Tensor

LIDAR_BOX_SIZE = 9
NETWORK_BOX_SIZE = 10


def _check_last_dimension(name: str, boxes, size: int) -> None:
    if boxes.shape[-1] != size:
        raise ValueError(f"{name} must be (..., {size}), got {tuple(boxes.shape)}")


def lidar_to_network_boxes(boxes: Tensor) -> Tensor:
    """Lidar boxes (..., 9) to network boxes (..., 10), same dtype and device.

    Sizes must be positive: a box of size 0 gives -inf in its logarithm.
    """
    _check_last_dimension("boxes", boxes, LIDAR_BOX_SIZE)
    x, y, bottom, length, width, height, yaw, vx, vy = boxes.unbind(-1)
    theta = -yaw - torch.pi / 2
    return torch.stack(
        [
            x,
            y,
            width.log(),
            length.log(),
            bottom + height / 2,
            height.log(),
            theta.sin(),
            theta.cos(),
            vx,
            vy,
        ],
        dim=-1,
    )


def network_to_lidar_boxes(boxes: Tensor) -> Tensor:
    """Network boxes (..., 10) to lidar boxes (..., 9), yaw in [-π, π)."""
    _check_last_dimension("boxes", boxes, NETWORK_BOX_SIZE)
    x, y, log_width, log_length, z, log_height, sin, cos, vx, vy = boxes.unbind(-1)
    height = log_height.exp()
    yaw = wrap_angle(-torch.atan2(sin, cos) - torch.pi / 2)
    return torch.stack(
        [x, y, z - height / 2, log_length.exp(), log_width.exp(), height, yaw, vx, vy], dim=-1
    )


def wrap_angle(angle: Tensor) -> Tensor:
    """Angles in radians to [-π, π)."""
    return torch.remainder(angle + torch.pi, 2 * torch.pi) - torch.pi


@dataclass(frozen=True)
class NuScenesBoxes:
    """Boxes as the nuScenes devkit stores them, in one frame of reference (ego or global).

    Arrays of float64: `center` (n, 3) centre of gravity in m, `size` (n, 3) as (w, l, h) in m,
    `rotation` (n, 4) quaternions (w, x, y, z), `velocity` (n, 2) in m/s.
    """

    center: np.ndarray
    size: np.ndarray
    rotation: np.ndarray
    velocity: np.ndarray

    def __len__(self) -> int:
        return len(self.center)


def lidar_to_nuscenes_boxes(boxes: np.ndarray, transform: np.ndarray) -> NuScenesBoxes:
    """Moves lidar boxes by a rigid transform and writes them in the convention of nuScenes.

    Args:
        boxes: (n, 9) lidar boxes.
        transform: (4, 4) rigid transform from the lidar frame, for example `lidar2ego` for the ego
            frame, or `ego2global @ lidar2ego` for the global one.
    """
    boxes = np.asarray(boxes, dtype=np.float64).reshape(-1, np.shape(boxes)[-1])
    _check_last_dimension("boxes", boxes, LIDAR_BOX_SIZE)
    transform = np.asarray(transform, dtype=np.float64)
    if transform.shape != (4, 4):
        raise ValueError(f"transform must be (4, 4), got {transform.shape}")
    turn = transform[:3, :3]
    center = boxes[:, :3] + boxes[:, 5:6] * [0, 0, 0.5]
    velocity = np.concatenate([boxes[:, 7:9], np.zeros((len(boxes), 1))], axis=-1)
    if len(boxes):
        heading = Rotation.from_matrix(turn) * Rotation.from_euler("z", boxes[:, 6:7])
        rotation = np.roll(heading.as_quat(), 1, axis=-1)
    else:
        rotation = np.zeros((0, 4))
    return NuScenesBoxes(
        center=center @ turn.T + transform[:3, 3],
        size=boxes[:, [4, 3, 5]],
        rotation=rotation,
        velocity=(velocity @ turn.T)[:, :2],
    )
