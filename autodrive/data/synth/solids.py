"""Convex shapes as sets of planes, and how rays that leave one point meet them.

In the frame of the sensor, which sits at the origin, a plane n·x = c is met by the ray along d at t = c / (n·d).
The inverse 1/t = n·d / c is linear in d, so over an image or a sweep it is a sum of a row and a column. A ray enters a
convex solid through the planes that the origin is outside of (c < 0), at the smallest of their 1/t, and leaves it at
the largest 1/t of the others: it hits if the former is larger, and positive. Larger 1/t is nearer.
"""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from autodrive.data.synth.objects import FACES
from autodrive.data.synth.world import Light, World


@dataclass(frozen=True)
class Solids:
    """All parts of what is near, at one time, in the global frame.

    Attributes:
        corners: (P, 8, 3) m.
        normals: (P, 6, 3) of the faces, outward, unit length.
        colours: (P, 6, 3) RGB of the faces with their light, 0..255.
        actors: (P,) index of the actor that a part belongs to, ascending.
    """

    corners: np.ndarray
    normals: np.ndarray
    colours: np.ndarray
    actors: np.ndarray

    def seen_from(self, rotation: np.ndarray, origin: np.ndarray) -> tuple[np.ndarray, ...]:
        """The solids in the frame of a sensor, given its rotation (3, 3) and position (3,) in the global one.

        Returns:
            corners (P, 8, 3) m; planes (P, 6, 3), n/c of each face, so that 1/t = plane·d; and (P, 6) bool, whether
            a face looks at the sensor (c < 0).
        """
        corners = (self.corners - origin) @ rotation
        normals = self.normals @ rotation
        c = (normals * corners[:, FACES[:, 0]]).sum(axis=-1)
        c = np.where(np.abs(c) < 1e-6, 1e-6, c)
        return corners, normals / c[..., None], c < 0

    def __len__(self) -> int:
        return len(self.actors)


def solids_at(
    world: World, t: float, centre: np.ndarray, radius: float, details: bool = True
) -> Solids:
    """The solids of all actors whose centre is within `radius` m of a point (x, y) at time `t`."""
    poses, shown = world.poses(t)
    shown &= np.hypot(*(poses[:, :2] - centre).T) < radius
    corners, normals, colours, actors = [], [], [], []
    for i in np.flatnonzero(shown):
        x, y, yaw = poses[i]
        cos, sin = np.cos(yaw), np.sin(yaw)
        rotation = np.array([[cos, sin, 0], [-sin, cos, 0], [0, 0, 1]])
        shape = world.actors[i].shape
        kept = slice(None) if details else ~shape.details
        corners.append(shape.corners[kept] @ rotation + [x, y, 0])
        normals.append(shape.normals[kept] @ rotation)
        colours.append(shape.colours[kept])
        actors.append(np.full(len(colours[-1]), i))
    normals = np.concatenate(normals)
    lit = np.concatenate(colours)[:, None] * shading(world.light, normals)[..., None]
    return Solids(np.concatenate(corners), normals, np.clip(lit, 0, 255), np.concatenate(actors))


def shading(light: Light, normals: np.ndarray) -> np.ndarray:
    """Brightness (...) of surfaces with unit normals (..., 3): ambient light from above, and the sun."""
    ambient = light.ambient * (0.82 + 0.18 * normals[..., 2])
    direct = (1 - light.ambient) * np.clip(normals @ np.array(light.sun), 0, None) * 1.25
    return light.brightness * (ambient + direct)


def intersect(
    rows: np.ndarray,
    columns: np.ndarray,
    facing: list[bool],
    first_face: int,
    nearest: np.ndarray,
    face: np.ndarray,
) -> None:
    """Lets the rays of a picture meet one convex solid, and keeps what is nearest.

    Args:
        rows, columns: (6, h, 1), (6, 1, w) float32; their sum is the 1/t at which rays meet the planes of the faces.
        facing: for each of the 6 faces, whether it looks at the sensor.
        first_face: number of the solid's face 0.
        nearest: (h, w) float32, 1/t of the nearest hit so far, at least 0; updated.
        face: (h, w) int32, its face; updated.
    """
    entered = None
    for k in range(6):
        if not facing[k]:
            continue
        inverse = rows[k] + columns[k]
        if entered is None:
            entered, which = inverse, first_face + k
        else:
            which = np.where(inverse < entered, first_face + k, which)
            np.minimum(entered, inverse, out=entered)
    if entered is None:  # the sensor is inside
        return
    hit = entered > nearest
    for k in range(6):
        if not facing[k]:
            hit &= entered > rows[k] + columns[k]
    np.copyto(nearest, entered, where=hit)
    np.copyto(face, which, where=hit)


def runs(values: np.ndarray) -> list[tuple[int, int]]:
    """Start and end of each run of equal values."""
    edges = [0, *(np.flatnonzero(np.diff(values)) + 1).tolist(), len(values)]
    return [(a, b) for a, b in pairwise(edges) if b > a]
