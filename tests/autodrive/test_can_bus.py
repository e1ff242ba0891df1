"""The CAN bus vector against the official numbers, and its edges."""

from pathlib import Path

import numpy as np
import pytest

from autodrive.data.can_bus import absolute_can_bus, relative_can_bus, stored_can_bus
from autodrive.data.info import lidar2img

DATA = Path(__file__).parents[1] / "data" / "bevformer"
CASES = ("can_bus_7", "can_bus_border")


def load(name: str) -> dict[str, np.ndarray]:
    with np.load(DATA / f"{name}.npz") as arrays:
        return dict(arrays)


def absolute(case: dict[str, np.ndarray]) -> np.ndarray:
    rows = zip(
        case["in_info_can_bus"],
        case["in_ego2global_translation"],
        case["in_ego2global_rotation"],
    )
    return np.stack([absolute_can_bus(*row) for row in rows])


@pytest.mark.parametrize("name", CASES)
def test_loaded_vectors_are_the_official_ones(name):
    case = load(name)
    np.testing.assert_allclose(absolute(case), case["out_can_bus_loaded"], rtol=0, atol=1e-9)


@pytest.mark.parametrize("name", CASES)
def test_training_queue_is_the_official_one(name):
    case = load(name)
    queue = case["in_queue"]
    relative, exists = relative_can_bus(absolute(case)[queue], case["in_scene"][queue].tolist())
    np.testing.assert_allclose(relative, case["out_can_bus_queue"], rtol=0, atol=1e-9)
    np.testing.assert_array_equal(exists, case["out_prev_bev_exists"])


@pytest.mark.parametrize("name", CASES)
def test_whole_stream_as_one_queue_is_the_official_test_stream(name):
    case = load(name)
    relative, exists = relative_can_bus(absolute(case), case["in_scene"].tolist())
    np.testing.assert_allclose(relative, case["out_can_bus_stream"], rtol=0, atol=1e-9)
    np.testing.assert_array_equal(exists, case["out_stream_has_previous"])


@pytest.mark.parametrize("name", CASES)
def test_lidar2img_is_the_official_one(name):
    case = load(name)
    for frame in range(7):
        for camera in range(6):
            cam2lidar = np.eye(4)
            cam2lidar[:3, :3] = case["in_sensor2lidar_rotation"][frame, camera]
            cam2lidar[:3, 3] = case["in_sensor2lidar_translation"][frame, camera]
            image = {
                "cam2img": case["in_cam_intrinsic"][frame, camera],
                "lidar2cam": np.linalg.inv(cam2lidar),
            }
            expected = case["out_lidar2img"][frame, camera]
            np.testing.assert_allclose(lidar2img(image), expected, rtol=1e-9, atol=1e-9)


def message(number: int) -> dict:
    """A pose message whose numbers tell where they come from."""
    return {
        "utime": 100 * number,
        "pos": [number, number, number],
        "orientation": [1 + number, 0, 0, 0],
        "accel": [10 + number] * 3,
        "rotation_rate": [20 + number] * 3,
        "vel": [30 + number] * 3,
    }


@pytest.mark.parametrize(
    ("timestamp", "before", "after", "valid"),
    [(250, 2, 3, True), (200, 2, 3, True), (300, 3, 3, True), (999, 3, 3, True), (50, 1, 1, False)],
)
def test_pose_is_of_the_last_message_and_motion_of_the_next(timestamp, before, after, valid):
    """K41: a sample before the first message takes that one, and is flagged."""
    vector, has_message = stored_can_bus([message(k) for k in (1, 2, 3)], timestamp)
    expected = [*[before] * 3, 1 + before, 0, 0, 0]
    expected += [*[10 + after] * 3, *[20 + after] * 3, *[30 + after] * 3, 0, 0]
    np.testing.assert_array_equal(vector, expected)
    assert has_message is valid


def test_no_messages_give_zeros_and_a_flag():
    """K41"""
    vector, has_message = stored_can_bus([], 5)
    assert not vector.any() and vector.shape == (18,) and not has_message


def test_differences_are_not_wrapped_and_heading_stays_absolute():
    rotations = [(np.cos(a / 2), 0, 0, np.sin(a / 2)) for a in np.radians([359, 1])]
    frames = np.stack([absolute_can_bus(np.zeros(18), (5, 6, 7), r) for r in rotations])
    relative, _ = relative_can_bus(frames, ["a", "a"])
    assert relative[1, 17] == pytest.approx(-358)
    assert relative[1, 16] == pytest.approx(np.radians(1))
    np.testing.assert_array_equal(relative[:, :3], 0)


def test_inputs_stay_as_they_are():
    stored, queue = np.ones(18), np.arange(36.0).reshape(2, 18)
    absolute_can_bus(stored, (5, 6, 7), (1, 0, 0, 0))
    relative_can_bus(queue, ["a", "a"])
    np.testing.assert_array_equal(stored, 1)
    np.testing.assert_array_equal(queue, np.arange(36.0).reshape(2, 18))


def test_vector_of_another_size_is_refused():
    with pytest.raises(ValueError, match=r"stored must be \(18,\), got \(16,\)"):
        absolute_can_bus(np.zeros(16), (0, 0, 0), (1, 0, 0, 0))
