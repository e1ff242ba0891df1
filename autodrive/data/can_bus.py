"""The vehicle's motion as BEVFormer reads it: one vector of 18 numbers for every frame.

| index | content |
|---|---|
| 0-2 | position of the ego in the global frame, m; made relative to the frame before |
| 3-6 | real part of the ego's quaternion, four times: what the published checkpoints were trained with |
| 7-9, 10-12, 13-15 | acceleration m/s², rotation rate rad/s, velocity m/s, from the CAN bus |
| 16 | heading in the global frame, rad, in [0, 2π) |
| 17 | the same in degrees; made relative to the frame before |
"""

from collections.abc import Sequence

import numpy as np
from pyquaternion import Quaternion

CAN_BUS_SIZE = 18
POSITION = slice(0, 3)
QUATERNION = slice(3, 7)
HEADING = 16
HEADING_DEGREES = 17


def stored_can_bus(pose_messages: Sequence[dict], timestamp: int) -> tuple[np.ndarray, bool]:
    """The vector of an info file, from the messages of one scene.

    Position and orientation come from the last message at or before `timestamp` (the first one if all are later),
    acceleration, rotation rate and velocity from the message after it, if there is one: the published checkpoints
    were trained with data made so.

    Args:
        pose_messages: the scene's CAN bus "pose" messages in order of time, as the devkit returns them.
        timestamp: of the sample, µs.

    Returns:
        (18,) float64, zeros without messages; and whether there is a message at or before `timestamp`.
    """
    vector = np.zeros(CAN_BUS_SIZE)
    if not pose_messages:
        return vector, False
    times = [message["utime"] for message in pose_messages]
    later = int(np.searchsorted(times, timestamp, side="right"))
    before = pose_messages[max(later - 1, 0)]
    after = pose_messages[min(later, len(times) - 1)]
    vector[POSITION] = before["pos"]
    vector[QUATERNION] = before["orientation"]
    vector[7:16] = [*after["accel"], *after["rotation_rate"], *after["vel"]]
    return vector, later > 0


def absolute_can_bus(
    stored: np.ndarray, translation: Sequence[float], rotation: Sequence[float]
) -> np.ndarray:
    """The vector of one frame with the ego's pose in it, not yet relative to another frame.

    Args:
        stored: (18,) as in the info file.
        translation: ego to global, m.
        rotation: ego to global, quaternion (w, x, y, z).

    Returns:
        (18,) float64.
    """
    if np.shape(stored) != (CAN_BUS_SIZE,):
        raise ValueError(f"stored must be ({CAN_BUS_SIZE},), got {np.shape(stored)}")
    vector = np.array(stored, dtype=np.float64)
    quaternion = Quaternion(rotation)
    forward = quaternion.rotation_matrix @ [1.0, 0.0, 0.0]
    heading = np.arctan2(forward[1], forward[0]) % (2 * np.pi)
    vector[POSITION] = translation
    vector[QUATERNION] = quaternion.real
    vector[HEADING] = heading
    vector[HEADING_DEGREES] = np.degrees(heading)
    return vector


def relative_can_bus(
    absolute: np.ndarray, scene_tokens: Sequence[str]
) -> tuple[np.ndarray, np.ndarray]:
    """Makes the vectors of a queue relative to the frame before each.

    Differences are not wrapped: from 359° to 1° is -358°.

    Args:
        absolute: (T, 18) in order of time.
        scene_tokens: (T,) the scene of each frame.

    Returns:
        relative (T, 18), and exists (T,) bool: whether the frame before is of the same scene. The first frame, and
        every first frame of a scene, has no previous one and position and turn 0.
    """
    relative = np.array(absolute, dtype=np.float64)
    exists = np.zeros(len(relative), dtype=bool)
    for t in range(len(relative)):
        exists[t] = t > 0 and scene_tokens[t] == scene_tokens[t - 1]
        for part in (POSITION, HEADING_DEGREES):
            relative[t, part] = absolute[t][part] - absolute[t - 1][part] if exists[t] else 0
    return relative, exists
