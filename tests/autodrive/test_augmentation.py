"""Mirrored and turned scenes stay consistent: boxes on their pixels, maps on the vehicle's motion."""

import numpy as np
import pytest
from pyquaternion import Quaternion

from autodrive.data.augmentation import OPPOSITE, SceneTransform
from autodrive.data.can_bus import absolute_can_bus, relative_can_bus
from autodrive.data.classes import CAMERAS
from examples.bevformer.ego_motion import ego_shift

TRANSFORMS = [
    SceneTransform(mirrored, angle) for mirrored in (False, True) for angle in (0.0, 0.7, -2.0)
]
RANGE = (-50.0, -50.0, -5.0, 50.0, 50.0, 3.0)


def test_left_and_right_cameras_change_places():
    assert [CAMERAS[i] for i in OPPOSITE] == [
        name.replace("LEFT", "x").replace("RIGHT", "LEFT").replace("x", "RIGHT") for name in CAMERAS
    ]


@pytest.mark.parametrize("transform", TRANSFORMS)
def test_a_box_stays_on_its_pixels(transform):
    rng = np.random.default_rng(0)
    frame = {
        "img": [rng.integers(0, 255, (4, 8, 3)) for _ in CAMERAS],
        "lidar2img": rng.normal(size=(6, 4, 4)),
    }
    box = np.array([[5.0, -3, 1, 4, 2, 1.5, 0.3, 1, 2]])
    moved, seen = transform.boxes(box), transform.frame(frame)
    pixels = []
    for projection, where in ((frame["lidar2img"], box), (seen["lidar2img"], moved)):
        x, y, depth, _ = (projection @ [*where[0, :3], 1]).T
        pixels.append((x / depth, y / depth, depth))
    (u, v, depth), (new_u, new_v, new_depth) = pixels
    if transform.mirrored:
        u, v, depth = 8 - u[OPPOSITE], v[OPPOSITE], depth[OPPOSITE]
        assert np.array_equal(seen["img"][1][:, ::-1], frame["img"][OPPOSITE[1]])
    np.testing.assert_allclose(new_u, u)
    np.testing.assert_allclose(new_v, v)
    np.testing.assert_allclose(new_depth, depth)


@pytest.mark.parametrize("transform", TRANSFORMS)
def test_a_box_that_drives_forward_still_does(transform):
    yaw, speed = 0.4, 3.0
    box = np.array([[0.0, 0, 0, 4, 2, 1, yaw, speed * np.cos(yaw), speed * np.sin(yaw)]])
    new_yaw, vx, vy = transform.boxes(box)[0, 6:]
    np.testing.assert_allclose([vx, vy], [speed * np.cos(new_yaw), speed * np.sin(new_yaw)])
    assert -np.pi <= new_yaw < np.pi


@pytest.mark.parametrize("transform", TRANSFORMS)
def test_the_shift_of_the_map_turns_with_the_frame(transform):
    stored = np.zeros(18)
    poses = [((10.0, 5.0, 0), 0.5), ((12.0, 6.5, 0), 0.6)]

    def shift(seen_from):
        vectors = []
        for translation, heading in poses:
            rotation = Quaternion(axis=[0, 0, 1], radians=heading).elements
            pose = seen_from.pose(translation, rotation)
            vectors.append(absolute_can_bus(seen_from.can_bus(stored), *pose))
        relative, _ = relative_can_bus(np.stack(vectors), ["a", "a"])
        return ego_shift(relative, RANGE, 10, 10)[1]

    expected = transform.matrix(sideways=0)[:2, :2] @ shift(SceneTransform())
    np.testing.assert_allclose(shift(transform), expected, atol=1e-12)


def test_mirroring_turns_the_rotation_rate_and_the_sideways_velocity():
    stored = np.arange(18.0)
    found = SceneTransform(mirrored=True).can_bus(stored)
    signs = [1, -1, 1, -1, 1, -1, 1, -1, 1]  # acceleration, rotation rate, velocity
    np.testing.assert_allclose(found[7:16], stored[7:16] * signs)
