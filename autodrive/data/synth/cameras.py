"""Camera pictures of the world: ground and sky, then every solid with a depth buffer.

No lens distortion, no motion blur: all of a picture is taken at one time.
"""

from dataclasses import dataclass

import cv2
import numpy as np

from autodrive.data.synth.ground import RESOLUTION, Ground
from autodrive.data.synth.solids import Solids, intersect, runs
from autodrive.data.synth.world import Light

_NEAR = 0.1  # m, of the projected outlines; nothing visible is nearer
_HAZE = 1 / 900.0  # share of the horizon's colour per m
_LEVELS = 6  # of the ground's resolution


@dataclass(frozen=True)
class Picture:
    """A rendered camera picture.

    Attributes:
        image: (h, w, 3) uint8 RGB.
        actors: (h, w) int, index of the actor that a pixel shows, -1 for none.
        depth: (h, w) float32 m along the optical axis, inf for the sky.
        outlines: (A,) pixels that each actor would cover with nothing in front of it.
    """

    image: np.ndarray
    actors: np.ndarray
    depth: np.ndarray
    outlines: np.ndarray


class GroundLevels:
    """The ground picture at falling resolutions, against aliasing in the distance."""

    def __init__(self, ground: Ground):
        self.origin = ground.origin
        self.images = [ground.image]
        for _ in range(_LEVELS - 1):
            h, w = self.images[-1].shape[:2]
            half = cv2.resize(self.images[-1], (w // 2, h // 2), interpolation=cv2.INTER_AREA)
            self.images.append(half)


def render(
    solids: Solids,
    ground: GroundLevels,
    light: Light,
    camera_to_global: np.ndarray,
    intrinsic: np.ndarray,
    size: tuple[int, int],
    actor_count: int,
) -> Picture:
    """What a pinhole camera sees.

    Args:
        solids: of the time of the picture.
        camera_to_global: (4, 4).
        intrinsic: (3, 3) px.
        size: (width, height) px.
        actor_count: A, of the world.
    """
    width, height = size
    rotation, origin = camera_to_global[:3, :3], camera_to_global[:3, 3]
    x = ((np.arange(width) - intrinsic[0, 2]) / intrinsic[0, 0]).astype(np.float32)
    y = ((np.arange(height) - intrinsic[1, 2]) / intrinsic[1, 1]).astype(np.float32)
    # The ground is the plane z = 0 of the global frame; 1/t = -(up·d)/height of the camera.
    up = (-rotation[2] / origin[2]).astype(np.float32)
    inverse = np.maximum((up[0] * x + up[2]) + (up[1] * y)[:, None], 0)

    image = _ground_and_sky(ground, light, rotation, origin, intrinsic, inverse, y)
    _cast_shadows(image, inverse, solids, light, rotation, origin, intrinsic)

    faces = np.full((height, width), -1, np.int32)
    outlines = np.zeros(actor_count, np.int64)
    corners, planes, facing = solids.seen_from(rotation, origin)
    planes, facing = planes.astype(np.float32), facing.tolist()
    bounds = _bounds(corners, intrinsic, size)
    in_sight = (bounds[:, :2] < bounds[:, 2:]).all(axis=1)
    for first, last in runs(solids.actors):
        shown = first + np.flatnonzero(in_sight[first:last])
        if not len(shown):
            continue
        left, top = bounds[shown, :2].min(axis=0)
        right, bottom = bounds[shown, 2:].max(axis=0)
        nearest = np.zeros((bottom - top, right - left), np.float32)
        face = np.zeros(nearest.shape, np.int32)
        for p in shown:
            u0, v0, u1, v1 = bounds[p]
            part = slice(v0 - top, v1 - top), slice(u0 - left, u1 - left)
            a, b, c = planes[p].T[..., None, None]
            rows, columns = b * y[v0:v1, None], a * x[u0:u1] + c
            intersect(rows, columns, facing[p], 6 * p, nearest[part], face[part])
        outlines[solids.actors[first]] = np.count_nonzero(nearest)
        window = slice(top, bottom), slice(left, right)
        front = nearest > inverse[window]
        np.copyto(inverse[window], nearest, where=front)
        np.copyto(faces[window], face, where=front)

    solid = faces >= 0
    colours = solids.colours.reshape(-1, 3).astype(np.float32)
    image[solid] = colours[faces[solid]]
    with np.errstate(divide="ignore"):
        depth = 1 / inverse
    haze = (np.minimum(depth * _HAZE, 0.6) * (inverse > 0))[..., None]
    image += (np.array(light.horizon, np.float32) * light.brightness - image) * haze
    actors = np.append(solids.actors, -1)[faces // 6]  # -1 // 6 is -1: the last
    return Picture(np.clip(image, 0, 255).astype(np.uint8), actors, depth, outlines)


def clip_near(points: np.ndarray) -> np.ndarray:
    """The part of a polygon (n, 3) in a camera's frame that lies in front of it (m, 3)."""
    front = points[:, 2] > _NEAR
    if front.all():
        return points
    kept = []
    for i, a in enumerate(points):
        j = (i + 1) % len(points)
        b = points[j]
        if front[i]:
            kept.append(a)
        if front[i] != front[j]:
            kept.append(a + (b - a) * (_NEAR - a[2]) / (b[2] - a[2]))
    return np.array(kept).reshape(-1, 3)


def project(points: np.ndarray, intrinsic: np.ndarray) -> np.ndarray:
    """Pixels (..., 2) of points (..., 3) of a camera's frame."""
    return points[..., :2] / points[..., 2:] * np.diag(intrinsic)[:2] + intrinsic[:2, 2]


def _bounds(corners: np.ndarray, intrinsic: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """(P, 4) left, top, right, bottom of the pixels that solids may cover; empty if they are out of sight."""
    front = corners[..., 2] > _NEAR
    low = np.full((len(corners), 2), np.inf)
    high = -low
    whole = front.all(axis=1)
    pixels = project(corners[whole], intrinsic)
    low[whole], high[whole] = pixels.min(axis=1), pixels.max(axis=1)
    a, b = np.triu_indices(8, 1)
    cut_off = np.flatnonzero(front.any(axis=1) & ~whole)
    for p in cut_off:  # at the near plane: what connects its corners is cut
        cut = front[p, a] != front[p, b]
        one, other = corners[p, a[cut]], corners[p, b[cut]]
        f = (_NEAR - one[:, 2:]) / (other[:, 2:] - one[:, 2:])
        points = np.concatenate([corners[p, front[p]], one + f * (other - one)])
        pixels = project(points, intrinsic)
        low[p], high[p] = pixels.min(axis=0), pixels.max(axis=0)
    low = np.clip(np.ceil(low), 0, size)
    high = np.clip(np.floor(high) + 1, 0, size)
    return np.concatenate([low, high], axis=1).astype(int)


def _ground_and_sky(
    ground: GroundLevels,
    light: Light,
    rotation: np.ndarray,
    origin: np.ndarray,
    intrinsic: np.ndarray,
    inverse: np.ndarray,
    y: np.ndarray,
) -> np.ndarray:
    """(h, w, 3) float32 without any object; `inverse` is 1/depth of the ground, 0 where the sky is."""
    width = inverse.shape[1]
    fraction = np.clip(-y / 0.5, 0, 1)[:, None]
    sky = fraction * np.array(light.zenith) + (1 - fraction) * np.array(light.horizon)
    image = np.repeat((sky * light.brightness).astype(np.float32)[:, None], width, axis=1)
    rows = np.flatnonzero(inverse.max(axis=1) > 0)
    # A pixel covers z²/(f·height) m along the view and z/f m across it; the level follows their geometric mean.
    z = 1 / np.maximum(inverse[:, width // 2], 1e-3)
    cover = np.sqrt(z**3 / (intrinsic[0, 0] ** 2 * origin[2]))
    level = np.clip(np.round(np.log2(cover / RESOLUTION)), 0, _LEVELS - 1).astype(int)
    for first, last in runs(level[rows]):
        top, bottom = int(rows[first]), int(rows[last - 1]) + 1
        step = 2 ** int(level[top])
        metres = RESOLUTION * step
        corner = ground.origin + RESOLUTION * (step - 1) / 2
        plane = np.array([[metres, 0, corner[0]], [0, metres, corner[1]], [0, 0, 0]])
        plane[:, 2] -= origin
        homography = intrinsic @ rotation.T @ plane
        homography[1] -= top * homography[2]
        band = cv2.warpPerspective(
            ground.images[level[top]],
            homography,
            (width, bottom - top),
            flags=cv2.INTER_LINEAR,
            borderMode=cv2.BORDER_REPLICATE,
        )
        seen = inverse[top:bottom] > 0
        image[top:bottom][seen] = band[seen]
    return image


def _cast_shadows(
    image: np.ndarray,
    inverse: np.ndarray,
    solids: Solids,
    light: Light,
    rotation: np.ndarray,
    origin: np.ndarray,
    intrinsic: np.ndarray,
) -> None:
    """Darkens the ground where the sun is hidden, softly."""
    mask = np.zeros(image.shape[:2], np.uint8)
    slant = np.array(light.sun[:2]) / light.sun[2]
    for first, last in runs(solids.actors):
        corners = solids.corners[first:last].reshape(-1, 3)
        shadow = corners[:, :2] - corners[:, 2:] * slant
        hull = cv2.convexHull(np.concatenate([shadow, corners[:, :2]]).astype(np.float32))[:, 0]
        flat = np.column_stack([hull, np.zeros(len(hull))])
        points = clip_near((flat - origin) @ rotation)
        if len(points) < 3:
            continue
        pixels = np.clip(project(points, intrinsic), -8000, 8000)
        cv2.fillPoly(mask, [np.rint(pixels * 8).astype(np.int32)], 255, cv2.LINE_AA, 3)
    blurred = cv2.GaussianBlur(mask, (0, 0), max(0.6, image.shape[1] / 500))
    strength = 0.75 * (1 - light.ambient) + 0.1
    image *= (1 - strength / 255 * blurred * (inverse > 0))[..., None].astype(np.float32)
