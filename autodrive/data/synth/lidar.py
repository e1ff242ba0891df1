"""Sweeps of the 32-beam lidar: every ray is cast against the ground and all solids at one time.

Points are in the lidar's frame at the time of the sweep, as nuScenes stores them after correcting for the ego's motion.
"""

import numpy as np

from autodrive.data.synth.ground import Ground
from autodrive.data.synth.solids import Solids, intersect

BEAMS = 32
COLUMNS = 1084  # per turn
ELEVATIONS = np.radians(np.linspace(-30.67, 10.67, BEAMS))  # ring 0 is the lowest
AZIMUTHS = -2 * np.pi * np.arange(COLUMNS) / COLUMNS  # clockwise
MAX_RANGE, MIN_RANGE = 100.0, 1.0  # m
RANGE_NOISE = 0.01  # m


def sweep(
    solids: Solids, ground: Ground, lidar_to_global: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    """(n, 5) float32: x, y, z (m, lidar frame), intensity 0..255, ring 0..31, in the order of firing."""
    rotation, origin = lidar_to_global[:3, :3], lidar_to_global[:3, 3]
    # With rays along (cos a, sin a, tan e), 1/t is a sum of a row and a column, and t the horizontal distance.
    # Solids across the seam of the turn are met in a second turn, which is then laid over the first.
    cos, sin = (np.tile(f(AZIMUTHS), 2).astype(np.float32) for f in (np.cos, np.sin))
    tan = np.tan(ELEVATIONS).astype(np.float32)[:, None]
    down = (-rotation[2] / origin[2]).astype(np.float32)  # to the ground, the plane z = 0 globally
    inverse = np.maximum(down[2] * tan + (down[0] * cos + down[1] * sin), 1 / MAX_RANGE)
    faces = np.full(inverse.shape, -1, np.int32)

    corners, planes, facing = solids.seen_from(rotation, origin)
    planes, facing = planes.astype(np.float32), facing.tolist()
    first, last = _columns(corners)
    for p in np.flatnonzero(last > first):
        at = slice(first[p], last[p])
        a, b, c = planes[p].T[..., None, None]
        columns = a * cos[at] + b * sin[at]
        intersect(c * tan, columns, facing[p], 6 * p, inverse[:, at], faces[:, at])
    inverse, second = np.hsplit(inverse, 2)
    faces = np.where(inverse < second, faces[:, COLUMNS:], faces[:, :COLUMNS])
    inverse = np.maximum(inverse, second)
    cos, sin = cos[:COLUMNS], sin[:COLUMNS]

    slant = np.hypot(1, tan)
    distance = slant / inverse + rng.normal(0, RANGE_NOISE, inverse.shape)
    directions = np.stack(np.broadcast_arrays(cos / slant, sin / slant, tan / slant), -1)
    points = directions * distance[..., None]
    returned = (inverse > 1 / MAX_RANGE) & (distance > MIN_RANGE)
    flat = (points @ rotation.T + origin)[..., :2].reshape(-1, 2)
    grey = ground.at(flat).mean(axis=1).reshape(inverse.shape) * 0.2
    bright = np.append(solids.colours.mean(axis=(1, 2)), 0.0)
    intensity = np.where(faces >= 0, bright[faces // 6] * 0.35, grey)
    intensity = np.clip(np.rint(intensity * rng.uniform(0.7, 1.3, inverse.shape)), 0, 255)
    ring = np.broadcast_to(np.arange(BEAMS)[:, None], inverse.shape)
    table = np.concatenate([points, intensity[..., None], ring[..., None]], axis=-1)
    return table.transpose(1, 0, 2)[returned.T].astype(np.float32)


def _columns(corners: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """First column (P,) in which solids may be hit, in the turn, and one past the last, at most a turn later."""
    angles = -np.arctan2(corners[..., 1], corners[..., 0])
    around = angles[:, :1]
    relative = (angles - around + np.pi) % (2 * np.pi) - np.pi
    step = 2 * np.pi / COLUMNS
    low = np.ceil((around[:, 0] + relative.min(axis=1)) / step).astype(int)
    high = np.floor((around[:, 0] + relative.max(axis=1)) / step).astype(int) + 1
    return low % COLUMNS, low % COLUMNS + high - low
