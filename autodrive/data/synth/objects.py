"""What stands and moves on the roads: nuScenes categories, sizes, and shapes made of tapered boxes.

A shape is a list of parts in fractions of the annotated box: x forward and y left in [-0.5, 0.5], z up in [0, 1].
Every class has its own outline and family of colours, and its front, back and sides differ.
"""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

RGB = tuple[float, float, float]
# width, length, height in m
SIZES = {
    "vehicle.car": (1.95, 4.62, 1.73),
    "vehicle.truck": (2.51, 6.93, 2.84),
    "vehicle.bus.rigid": (2.94, 10.8, 3.47),
    "vehicle.trailer": (2.75, 11.6, 3.75),
    "vehicle.construction": (2.75, 6.4, 3.2),
    "vehicle.motorcycle": (0.77, 2.11, 1.47),
    "vehicle.bicycle": (0.61, 1.7, 1.3),
    "human.pedestrian.adult": (0.67, 0.73, 1.77),
    "human.pedestrian.child": (0.5, 0.52, 1.3),
    "human.pedestrian.construction_worker": (0.7, 0.73, 1.75),
    "movable_object.barrier": (2.5, 0.5, 0.98),
    "movable_object.trafficcone": (0.41, 0.41, 1.05),
}

GLASS = (38, 48, 58)
RUBBER = (28, 28, 30)
WHITE = (232, 232, 228)
LAMP = (255, 244, 190)
RED = (205, 24, 20)
SKIN = (205, 160, 130)
ORANGE = (240, 104, 22)
PAINTS = {
    "vehicle.car": [(52, 96, 178), (168, 174, 182), (92, 132, 196), (36, 56, 104), (206, 212, 220)],
    "vehicle.truck": [(150, 42, 40), (128, 60, 46), (170, 54, 60)],
    "vehicle.bus.rigid": [(228, 206, 84), (238, 220, 120)],
    "vehicle.trailer": [(122, 158, 126), (104, 140, 112)],
    "vehicle.construction": [(232, 138, 14), (222, 128, 24)],
    "vehicle.motorcycle": [(118, 26, 122), (140, 34, 110)],
    "vehicle.bicycle": [(22, 150, 148), (34, 168, 120)],
    "human.pedestrian.adult": [(186, 52, 70), (60, 110, 70), (90, 70, 140), (200, 190, 160)],
    "human.pedestrian.child": [(220, 90, 150), (90, 190, 220)],
    "human.pedestrian.construction_worker": [(214, 236, 40)],
    "movable_object.barrier": [(232, 96, 34)],
    "movable_object.trafficcone": [ORANGE],
}


@dataclass(frozen=True)
class Part:
    """A tapered box: rectangles (x0, x1, y0, y1) at heights z0 < z1, all in fractions of the object's box."""

    bottom: tuple[float, float, float, float]
    top: tuple[float, float, float, float]
    z0: float
    z1: float
    colour: RGB
    detail: bool = False  # a matter of looks; the lidar leaves it out


# The corners of a part: of its bottom, then its top, each counter-clockwise from (x0, y0).
# Three corners of each face, counter-clockwise from outside: bottom, top, and the sides towards -y, +x, +y, -x.
FACES = np.array([[0, 2, 1], [4, 5, 6], [0, 1, 5], [1, 2, 6], [2, 3, 7], [3, 0, 4]])


@dataclass(frozen=True)
class Shape:
    """The P parts of an object in its own frame: origin in the middle of the base, x forward, y left, z up.

    Attributes:
        corners: (P, 8, 3) m.
        normals: (P, 6, 3) of the faces, outward, unit length.
        colours: (P, 3) RGB.
        details: (P,) bool, see `Part`.
    """

    corners: np.ndarray
    normals: np.ndarray
    colours: np.ndarray
    details: np.ndarray


def make_shape(parts: tuple[Part, ...], size: tuple[float, float, float]) -> Shape:
    """The shape of a box (width, length, height in m) that has these parts."""
    corners = np.empty((len(parts), 8, 3))
    for part, out in zip(parts, corners):
        for k, ((x0, x1, y0, y1), z) in enumerate(((part.bottom, part.z0), (part.top, part.z1))):
            out[4 * k : 4 * k + 4] = [(x0, y0, z), (x1, y0, z), (x1, y1, z), (x0, y1, z)]
    width, length, height = size
    corners *= [length, width, height]
    a, b, c = (corners[:, FACES[:, k]] for k in range(3))
    normals = np.cross(b - a, c - a)
    normals /= np.linalg.norm(normals, axis=-1, keepdims=True)
    colours = np.array([part.colour for part in parts], dtype=float)
    return Shape(corners, normals, colours, np.array([part.detail for part in parts]))


def _box(
    x0: float, x1: float, y: float, z0: float, z1: float, colour: RGB, detail: bool = False
) -> Part:
    """A box symmetric about the x axis."""
    return Part((x0, x1, -y, y), (x0, x1, -y, y), z0, z1, colour, detail)


def _wheels(at: tuple[float, ...], length: float, z1: float, y: float = 0.5) -> list[Part]:
    return [_box(x - length / 2, x + length / 2, y, 0.0, z1, RUBBER) for x in at]


def _lights(
    front_z: tuple[float, float], back_z: tuple[float, float], y: float = 0.44
) -> list[Part]:
    """White lamps in front and red ones behind, a dark grille between the former."""
    return [
        _box(0.485, 0.499, y, *front_z, LAMP, True),
        _box(0.49, 0.5, y * 0.55, *front_z, GLASS, True),
        _box(-0.499, -0.485, y, *back_z, RED, True),
    ]


def _car(paint: RGB) -> list[Part]:
    return [
        _box(-0.49, 0.49, 0.47, 0.14, 0.56, paint),
        Part((-0.44, 0.24, -0.45, 0.45), (-0.33, 0.08, -0.38, 0.38), 0.56, 0.96, GLASS),
        _box(-0.33, 0.08, 0.385, 0.94, 1.0, paint),
        *_wheels((-0.3, 0.31), 0.15, 0.37, 0.49),
        *_lights((0.34, 0.48), (0.36, 0.5)),
    ]


def _truck(paint: RGB) -> list[Part]:
    return [
        _box(0.22, 0.49, 0.47, 0.16, 0.72, paint),
        Part((0.24, 0.485, -0.46, 0.46), (0.24, 0.44, -0.44, 0.44), 0.72, 0.82, paint),
        _box(0.46, 0.494, 0.42, 0.46, 0.7, GLASS, True),
        _box(0.3, 0.42, 0.475, 0.48, 0.7, GLASS, True),
        _box(-0.5, 0.19, 0.5, 0.22, 1.0, WHITE),
        _box(-0.5, 0.19, 0.502, 0.5, 0.6, paint, True),
        *_wheels((-0.3, 0.33), 0.13, 0.32, 0.49),
        *_lights((0.26, 0.34), (0.22, 0.3)),
    ]


def _bus(paint: RGB) -> list[Part]:
    return [
        _box(-0.495, 0.49, 0.49, 0.09, 0.97, paint),
        _box(-0.42, 0.46, 0.5, 0.45, 0.76, GLASS, True),
        _box(0.48, 0.497, 0.45, 0.36, 0.8, GLASS, True),
        _box(-0.5, -0.48, 0.38, 0.55, 0.76, GLASS, True),
        _box(-0.46, 0.44, 0.4, 0.97, 1.0, WHITE, True),
        *_wheels((-0.28, 0.3), 0.09, 0.28, 0.495),
        *_lights((0.16, 0.24), (0.14, 0.24)),
    ]


def _trailer(paint: RGB) -> list[Part]:
    ribs = [
        _box(x - 0.008, x + 0.008, 0.5, 0.32, 0.98, (70, 98, 78), True)
        for x in (-0.36, -0.12, 0.12, 0.36)
    ]
    return [
        _box(-0.49, 0.5, 0.49, 0.3, 1.0, paint),
        *ribs,
        _box(-0.5, -0.485, 0.44, 0.34, 0.4, RED, True),
        _box(-0.5, -0.485, 0.03, 0.4, 0.98, (60, 60, 62), True),
        _box(-0.48, 0.36, 0.14, 0.2, 0.3, RUBBER),
        *_wheels((-0.4, -0.28), 0.085, 0.27, 0.47),
        _box(0.3, 0.33, 0.3, 0.0, 0.3, RUBBER),
    ]


def _construction(paint: RGB) -> list[Part]:
    """An excavator: tracks, house with a cab, boom forward with a bucket."""
    return [
        Part((-0.36, 0.3, -0.5, -0.28), (-0.42, 0.36, -0.5, -0.28), 0.0, 0.26, RUBBER),
        Part((-0.36, 0.3, 0.28, 0.5), (-0.42, 0.36, 0.28, 0.5), 0.0, 0.26, RUBBER),
        _box(-0.5, 0.14, 0.46, 0.28, 0.6, paint),
        _box(-0.5, -0.36, 0.45, 0.3, 0.56, (60, 56, 50), True),
        Part((-0.12, 0.16, 0.06, 0.44), (-0.12, 0.1, 0.06, 0.42), 0.6, 0.98, GLASS),
        Part((-0.13, 0.12, 0.05, 0.45), (-0.13, 0.12, 0.05, 0.45), 0.96, 1.0, paint),
        Part((0.06, 0.2, -0.14, 0.0), (0.28, 0.38, -0.14, 0.0), 0.42, 0.98, paint),
        Part((0.4, 0.48, -0.13, -0.01), (0.28, 0.38, -0.13, -0.01), 0.2, 0.98, (190, 108, 8)),
        Part((0.34, 0.46, -0.3, 0.16), (0.36, 0.5, -0.3, 0.16), 0.0, 0.22, (74, 70, 66)),
    ]


def _cycle(paint: RGB, rider: bool, thick: float) -> list[Part]:
    """Two wheels and a frame, and the rider leaning forward on it."""
    top = 0.42 if rider else 0.62
    parts = [
        *_wheels((-0.34, 0.34), 0.31, top, thick),
        _box(-0.34, 0.3, thick * 1.2, top * 0.62, top * 1.12, paint),
        _box(0.28, 0.34, 0.5, top * 1.4, top * 1.55, RUBBER),
        _box(0.28, 0.34, thick, top, top * 1.5, paint),
        _box(-0.2, -0.06, 0.22, top * 1.1, top * 1.25, RUBBER),
        _box(0.4, 0.5, thick * 1.1, top * 1.1, top * 1.3, LAMP, True),
        _box(-0.5, -0.44, thick * 1.1, top, top * 1.2, RED, True),
    ]
    if rider:
        parts += [
            _box(-0.18, 0.08, 0.34, 0.3, 0.54, (52, 52, 70)),
            Part((-0.22, 0.02, -0.36, 0.36), (-0.06, 0.16, -0.4, 0.4), 0.5, 0.82, paint),
            _box(0.0, 0.16, 0.16, 0.82, 0.94, SKIN),
            _box(-0.02, 0.15, 0.18, 0.9, 1.0, WHITE),
        ]
    return parts


def _pedestrian(paint: RGB, helmet: bool) -> list[Part]:
    return [
        Part((-0.2, 0.3, 0.04, 0.26), (-0.16, 0.16, 0.04, 0.28), 0.0, 0.48, (46, 50, 66)),
        Part((-0.34, 0.16, -0.26, -0.04), (-0.18, 0.14, -0.28, -0.04), 0.0, 0.48, (46, 50, 66)),
        Part((-0.2, 0.18, -0.32, 0.32), (-0.24, 0.22, -0.4, 0.4), 0.46, 0.83, paint),
        _box(-0.1, 0.3, 0.5, 0.52, 0.72, tuple(0.8 * c for c in paint)),
        _box(-0.14, 0.2, 0.17, 0.83, 0.99, SKIN),
        _box(-0.2, 0.1, 0.19, 0.9, 1.0, WHITE if helmet else (54, 38, 28)),
    ]


def _barrier(paint: RGB) -> list[Part]:
    """Long across its heading, as nuScenes annotates barriers: stripes along y, a foot below."""
    stripes = []
    edges = np.linspace(-0.49, 0.49, 8)
    for y0, y1 in list(pairwise(edges.tolist()))[1::2]:
        rectangle = (-0.21, 0.21, y0, y1)
        stripes.append(Part(rectangle, rectangle, 0.28, 0.99, WHITE, detail=True))
    foot = Part((-0.5, 0.5, -0.5, 0.5), (-0.28, 0.28, -0.5, 0.5), 0.0, 0.28, (150, 148, 142))
    return [_box(-0.2, 0.2, 0.49, 0.28, 1.0, paint), *stripes, foot]


def _cone(paint: RGB) -> list[Part]:
    def ring(z0: float, z1: float, colour: RGB) -> Part:
        a, b = (0.40 - 0.33 * z for z in (z0, z1))
        return Part((-a, a, -a, a), (-b, b, -b, b), z0, z1, colour)

    base = _box(-0.5, 0.5, 0.5, 0.0, 0.06, RUBBER)
    return [base, ring(0.06, 0.45, paint), ring(0.45, 0.7, WHITE), ring(0.7, 1.0, paint)]


def make_parts(category: str, rng: np.random.Generator, rider: bool = False) -> list[Part]:
    """The shape of an object of a category, painted in one of its colours."""
    paints = PAINTS[category]
    tint = rng.uniform(0.9, 1.08)
    paint = tuple(min(255.0, c * tint) for c in paints[int(rng.integers(len(paints)))])
    match category:
        case "vehicle.car":
            return _car(paint)
        case "vehicle.truck":
            return _truck(paint)
        case "vehicle.bus.rigid":
            return _bus(paint)
        case "vehicle.trailer":
            return _trailer(paint)
        case "vehicle.construction":
            return _construction(paint)
        case "vehicle.motorcycle":
            return _cycle(paint, rider, thick=0.2)
        case "vehicle.bicycle":
            return _cycle(paint, rider, thick=0.1)
        case "movable_object.barrier":
            return _barrier(paint)
        case "movable_object.trafficcone":
            return _cone(paint)
    return _pedestrian(paint, helmet=category.endswith("worker"))


def make_size(category: str, rng: np.random.Generator) -> tuple[float, float, float]:
    """Width, length, height in m, within 5 % of the category's."""
    return tuple(round(float(v * rng.uniform(0.95, 1.05)), 3) for v in SIZES[category])
