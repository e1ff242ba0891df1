"""Box conventions: network, lidar and nuScenes."""

import numpy as np
import pytest
import torch
from nuscenes.utils.data_classes import Box
from pyquaternion import Quaternion

from autodrive.geometry.boxes import (
    lidar_to_network_boxes,
    lidar_to_nuscenes_boxes,
    network_to_lidar_boxes,
    wrap_angle,
)


def random_boxes(n: int) -> torch.Tensor:
    rng = np.random.default_rng(0)
    boxes = rng.normal(size=(n, 9)) * [30, 30, 2, 0, 0, 0, 2, 4, 4]
    boxes[:, 3:6] = rng.uniform(0.3, 12, (n, 3))
    return torch.from_numpy(boxes)


def test_network_box_of_a_car_heading_along_x():
    box = torch.tensor([[10.0, -4.0, -1.5, 4.0, 2.0, 1.6, 0.0, 3.0, 0.5]])
    expected = [10, -4, np.log(2), np.log(4), -0.7, np.log(1.6), -1, 0, 3, 0.5]
    torch.testing.assert_close(lidar_to_network_boxes(box), torch.tensor([expected]).float())


def test_network_boxes_and_back():
    boxes = random_boxes(50)
    back = network_to_lidar_boxes(lidar_to_network_boxes(boxes))
    boxes[:, 6] = wrap_angle(boxes[:, 6])
    torch.testing.assert_close(back, boxes)
    assert network_to_lidar_boxes(torch.zeros(0, 10)).shape == (0, 9)


def test_nuscenes_boxes_agree_with_the_devkit():
    boxes = random_boxes(20).numpy()
    turn = Quaternion(0.7, 0.1, -0.2, 0.6).normalised
    transform = turn.transformation_matrix
    transform[:3, 3] = [600.0, 1200.0, 1.5]
    moved = lidar_to_nuscenes_boxes(boxes, transform)
    for k, (x, y, bottom, length, width, height, yaw, vx, vy) in enumerate(boxes):
        box = Box(
            [x, y, bottom + height / 2],
            [width, length, height],
            Quaternion(axis=[0, 0, 1], radians=yaw),
            velocity=(vx, vy, 0),
        )
        box.rotate(turn)
        box.translate(transform[:3, 3])
        np.testing.assert_allclose(moved.center[k], box.center, atol=1e-9)
        np.testing.assert_allclose(moved.size[k], box.wlh)
        np.testing.assert_allclose(moved.velocity[k], box.velocity[:2], atol=1e-9)
        rotation = Quaternion(moved.rotation[k])
        assert Quaternion.absolute_distance(rotation, box.orientation) < 1e-7


def test_no_boxes_give_no_boxes():
    moved = lidar_to_nuscenes_boxes(np.zeros((0, 9)), np.eye(4))
    assert len(moved) == 0 and moved.rotation.shape == (0, 4)


def test_wrong_shapes_are_named():
    with pytest.raises(ValueError, match=r"boxes must be \(..., 9\), got \(2, 7\)"):
        lidar_to_network_boxes(torch.zeros(2, 7))
    with pytest.raises(ValueError, match=r"transform must be \(4, 4\), got \(3, 3\)"):
        lidar_to_nuscenes_boxes(np.zeros((1, 9)), np.eye(3))
