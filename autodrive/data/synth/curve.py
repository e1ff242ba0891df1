"""Plane curves made of straight pieces and circular arcs: centre lines of roads and lanes, paths of everything."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np


@dataclass(frozen=True)
class Curve:
    """Pieces of constant curvature, one after the other, parametrised by arc length `s` in m.

    Attributes:
        start: x, y (m) and yaw (rad) where s = 0.
        lengths: of the pieces, m, > 0.
        curvatures: of the pieces, 1/m, positive to the left.
    """

    start: tuple[float, float, float]
    lengths: tuple[float, ...]
    curvatures: tuple[float, ...]

    @property
    def length(self) -> float:
        return float(self.knots[-1])

    @cached_property
    def knots(self) -> np.ndarray:
        """(pieces + 1,) arc length at the ends of the pieces."""
        return np.concatenate([[0.0], np.cumsum(self.lengths)])

    @cached_property
    def _knot_poses(self) -> np.ndarray:
        poses = [np.array(self.start, dtype=float)]
        for length, curvature in zip(self.lengths, self.curvatures):
            poses.append(_advance(poses[-1], np.float64(length), np.float64(curvature)))
        return np.array(poses)

    def _piece(self, s: np.ndarray) -> np.ndarray:
        return np.clip(np.searchsorted(self.knots, s, side="right") - 1, 0, len(self.lengths) - 1)

    def pose(self, s: float | np.ndarray, left: float = 0.0) -> np.ndarray:
        """Poses at arc lengths `s` (...), moved `left` m sideways: (..., 3) x, y, yaw.

        Beyond its ends the curve goes on as its first and last piece do.
        """
        s = np.asarray(s, dtype=float)
        piece = self._piece(s)
        pose = _advance(
            self._knot_poses[piece], s - self.knots[piece], np.array(self.curvatures)[piece]
        )
        pose[..., 0] -= left * np.sin(pose[..., 2])
        pose[..., 1] += left * np.cos(pose[..., 2])
        return pose

    def curvature(self, s: float | np.ndarray) -> np.ndarray:
        return np.array(self.curvatures)[self._piece(np.asarray(s, dtype=float))]

    def points(self, left: float = 0.0, step: float = 2.0) -> np.ndarray:
        """(n, 2) points along the curve moved `left` m, at most `step` m apart, both ends and all knots among them."""
        s = [0.0]
        for i, (length, curvature) in enumerate(zip(self.lengths, self.curvatures)):
            count = max(1, int(np.ceil(length / step))) if curvature else 1
            s.extend(self.knots[i] + length * np.arange(1, count + 1) / count)
        return self.pose(np.array(s), left)[:, :2]

    def offset(self, left: float) -> "Curve":
        """The parallel curve `left` m to the left; arcs keep their centres."""
        stretch = [1 - k * left for k in self.curvatures]
        return Curve(
            tuple(self.pose(0.0, left).tolist()),
            tuple(length * f for length, f in zip(self.lengths, stretch)),
            tuple(k / f for k, f in zip(self.curvatures, stretch)),
        )

    def section(self, start: float, end: float) -> "Curve":
        """The part between two arc lengths; the first and last piece reach as far as asked."""
        inner = [k for k in self.knots[1:-1] if start + 1e-6 < k < end - 1e-6]
        ends = np.array([start, *inner, end])
        middles = (ends[1:] + ends[:-1]) / 2
        return Curve(
            tuple(self.pose(start).tolist()),
            tuple(np.diff(ends).tolist()),
            tuple(self.curvature(middles).tolist()),
        )

    def reversed(self) -> "Curve":
        x, y, yaw = self._knot_poses[-1]
        return Curve(
            (float(x), float(y), float(yaw + np.pi)),
            self.lengths[::-1],
            tuple(-k for k in self.curvatures[::-1]),
        )

    def strip(self, right: float, left: float) -> np.ndarray:
        """(n, 2) polygon of the band between two lateral offsets, m to the left, counter-clockwise."""
        return np.concatenate([self.points(right), self.points(left)[::-1]])


def turn(start: np.ndarray, end: np.ndarray) -> Curve:
    """The right-angled turn from one pose to another: straight, a quarter of a circle, straight."""
    dx, dy = end[:2] - start[:2]
    cos, sin = np.cos(start[2]), np.sin(start[2])
    forward, left = cos * dx + sin * dy, cos * dy - sin * dx
    radius = min(forward, abs(left))
    pieces = [
        (forward - radius, 0.0),
        (radius * np.pi / 2, np.sign(left) / radius),
        (abs(left) - radius, 0.0),
    ]
    pieces = [(float(length), float(k)) for length, k in pieces if length > 1e-6]
    return Curve(tuple(np.asarray(start).tolist()), *map(tuple, zip(*pieces)))


def _advance(pose: np.ndarray, s: np.ndarray, curvature: np.ndarray) -> np.ndarray:
    """Moves poses (..., 3) by arc lengths (...) along circles: the chord has length s·sinc of half the turn."""
    angle = curvature * s
    chord = s * np.sinc(angle / (2 * np.pi))
    direction = pose[..., 2] + angle / 2
    return np.stack(
        [
            pose[..., 0] + chord * np.cos(direction),
            pose[..., 1] + chord * np.sin(direction),
            pose[..., 2] + angle,
        ],
        axis=-1,
    )
