"""The ground seen from above: asphalt, markings, crossings, walkways and grass, as one picture per scene."""

import cv2
import numpy as np

from autodrive.data.synth.road_map import RoadMap
from autodrive.data.synth.world import World

RESOLUTION = 0.1  # m per pixel
_GRASS, _WALKWAY, _ASPHALT, _PARKING = (92, 112, 62), (158, 154, 148), (84, 85, 88), (74, 75, 79)
_WHITE, _YELLOW, _KERB = (222, 222, 218), (214, 176, 60), (186, 184, 180)
_SHIFT = 4  # fractional bits of polygon corners


class Ground:
    """Ground picture.

    Attributes:
        image: (h, w, 3) uint8 RGB; row 0 is at the smallest y.
        origin: global x, y of the centre of pixel (0, 0), m.
    """

    def __init__(self, world: World, reach: float):
        rng = np.random.default_rng([world.seed, world.index, 1])
        drive = world.ego.pose(np.linspace(-0.5, world.duration + 0.5, 50))[:, :2]
        self.origin = np.floor(drive.min(axis=0) - reach)
        width, height = np.ceil((drive.max(axis=0) + reach - self.origin) / RESOLUTION).astype(int)
        self.image = np.empty((height, width, 3), np.uint8)
        self.image[:] = _GRASS
        self._paint(world.road_map)
        noise = np.tile(_noise(rng), (height // 512 + 1, width // 512 + 1))[:height, :width]
        scale = world.light.brightness * (0.9 + 0.1 * world.light.ambient) / 128
        self.image = cv2.multiply(self.image, cv2.merge([noise] * 3), scale=scale)

    def at(self, points: np.ndarray) -> np.ndarray:
        """(n, 3) colours under global points (n, 2); 0 outside."""
        pixels = np.rint((points - self.origin) / RESOLUTION).astype(int)
        inside = ((pixels >= 0) & (pixels < self.image.shape[1::-1])).all(axis=1)
        colours = np.zeros((len(points), 3), np.uint8)
        colours[inside] = self.image[pixels[inside, 1], pixels[inside, 0]]
        return colours

    def _fill(self, polygon: np.ndarray, colour: tuple[int, int, int]) -> None:
        pixels = np.rint((polygon - self.origin) / RESOLUTION * 2**_SHIFT).astype(np.int32)
        cv2.fillPoly(self.image, [pixels], colour, cv2.LINE_AA, _SHIFT)

    def _line(
        self, points: np.ndarray, width: float, colour, dash: tuple[float, float] | None = None
    ):
        """A painted line `width` m wide; `dash` is the length of paint and of gap, m."""
        steps = np.hypot(*np.diff(points, axis=0).T)
        s = np.concatenate([[0], np.cumsum(steps)])
        paint, gap = dash or (s[-1], 1.0)
        for start in np.arange(0, s[-1], paint + gap):
            end = min(start + paint, s[-1])
            at = np.array([start, *s[(s > start) & (s < end)], end])
            line = np.stack([np.interp(at, s, points[:, k]) for k in (0, 1)], axis=1)
            along = np.gradient(line, axis=0)
            along /= np.linalg.norm(along, axis=1, keepdims=True)
            side = along[:, ::-1] * [-1, 1] * width / 2
            self._fill(np.concatenate([line + side, (line - side)[::-1]]), colour)

    def _paint(self, road_map: RoadMap) -> None:
        for polygon in road_map.walkways:
            self._fill(polygon, _WALKWAY)
        for polygon, _ in road_map.segments:
            self._fill(polygon, _ASPHALT)
        for polygon, _, _ in road_map.carparks:
            self._fill(polygon, _PARKING)
            half = len(polygon) // 2
            self._line(polygon[half:], 0.12, _WHITE)  # to the lanes
            self._line(polygon[:half], 0.25, _KERB)
        for line, _ in road_map.road_dividers:
            self._line(line, 0.5, _YELLOW)
            self._line(line, 0.2, _ASPHALT)
        for line, _ in road_map.lane_dividers:
            self._line(line, 0.16, _WHITE, dash=(3.0, 4.0))
        for polygon, *_ in road_map.stop_lines:
            self._fill(polygon, _WHITE)
        for polygon, _ in road_map.crossings:
            self._zebra(polygon)

    def _zebra(self, polygon: np.ndarray) -> None:
        """Stripes of 0.5 m along the short side of a crossing (a strip: half of its points on either long side)."""
        half = len(polygon) // 2
        one, other = polygon[:half], polygon[half:][::-1]
        if np.hypot(*(one[-1] - one[0])) < np.hypot(*(other[0] - one[0])):
            one, other = np.stack([one[0], other[0]]), np.stack([one[-1], other[-1]])
        length = np.hypot(*(one[-1] - one[0]))
        for start in np.arange(0.3, length - 0.5, 1.0):
            f = np.array([start, start + 0.5])[:, None] / length
            a = one[0] + f * (one[-1] - one[0])
            b = other[0] + f * (other[-1] - other[0])
            self._fill(np.concatenate([a, b[::-1]]), _WHITE)


def _noise(rng: np.random.Generator) -> np.ndarray:
    """(512, 512) uint8 around 128: fine grain and soft patches, tileable."""
    fine = rng.standard_normal((512, 512)).astype(np.float32)
    noise = 0.035 * fine
    for sigma, strength in ((4, 0.05), (24, 0.06)):
        blurred = cv2.GaussianBlur(np.tile(fine, (3, 3)), (0, 0), sigma)[512:1024, 512:1024]
        noise += strength * blurred / blurred.std()
    return np.rint(128 * np.clip(1 + noise, 0.6, 1.4)).astype(np.uint8)
