"""The road network of one scene: a main road with bends, a crossing and a T-junction, and what is painted on them.

Everything is in the global frame, in m. Traffic keeps to the right. The ground is flat (z = 0).
"""

from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from autodrive.data.synth.curve import Curve, turn

LANE_WIDTH = 3.6
PARKING_WIDTH = 3.3
WALKWAY_WIDTH = 3.5
CORNER = 5.0  # how far the kerb is cut at the corners of a junction
ARM_LENGTH = 75.0  # of a side road, from the middle of the main road
RUN_OUT = 85.0  # of the main road, before and after the drive


@dataclass(frozen=True)
class Road:
    """A road: `lanes` each way beside the centre line, then a parking strip and a walkway on both sides."""

    centre: Curve
    lanes: int

    @property
    def half_width(self) -> float:
        """From the centre line to the kerb, m."""
        return self.lanes * LANE_WIDTH + PARKING_WIDTH

    def lane_offset(self, index: int, forward: bool) -> float:
        """Lateral position (m to the left) of a lane, counted from the centre line."""
        return (-1 if forward else 1) * (index + 0.5) * LANE_WIDTH

    def lane(self, index: int, forward: bool) -> Curve:
        """The centre line of a lane in its direction of travel."""
        curve = self.centre.offset(self.lane_offset(index, forward))
        return curve if forward else curve.reversed()


@dataclass(frozen=True)
class Junction:
    """Where side roads meet the main road: at `s` of the main road, with arms to the left and/or right."""

    s: float
    arms: dict[int, Road]  # +1: to the left, -1: to the right; centre lines start on the main one
    half_length: float  # along the main road


@dataclass(frozen=True)
class Lane:
    curve: Curve
    block: int = -1  # index of the road block; -1 for connectors
    left_divider: int = -1  # index of the lane divider
    right_divider: int = -1


@dataclass(frozen=True)
class Block:
    """A stretch of road in one direction: polygon, ends, and its place in `RoadMap.segments`."""

    polygon: np.ndarray
    start_edge: np.ndarray
    end_edge: np.ndarray
    segment: int


@dataclass
class RoadMap:
    """Roads and their layers; polygons and lines are (n, 2) arrays."""

    main: Road
    junctions: list[Junction]
    lanes: list[Lane] = field(default_factory=list)
    connectors: list[Lane] = field(default_factory=list)
    blocks: list[Block] = field(default_factory=list)
    segments: list[tuple[np.ndarray, bool]] = field(default_factory=list)  # polygon, is junction
    road_dividers: list[tuple[np.ndarray, int]] = field(default_factory=list)  # line, segment
    lane_dividers: list[tuple[np.ndarray, int]] = field(default_factory=list)  # line, segment
    walkways: list[np.ndarray] = field(default_factory=list)
    carparks: list[tuple[np.ndarray, float, int]] = field(default_factory=list)  # .., yaw, block
    crossings: list[tuple[np.ndarray, int]] = field(default_factory=list)  # polygon, segment
    # polygon, index of the crossing behind it, inbound block, pose of its traffic light
    stop_lines: list[tuple[np.ndarray, int, int, np.ndarray]] = field(default_factory=list)

    def free_of_junctions(self, margin: float) -> list[tuple[float, float]]:
        """Intervals of the main road's s at least `margin` m away from junctions."""
        ends = [0.0]
        for junction in self.junctions:
            reach = junction.half_length + margin
            ends += [junction.s - reach, junction.s + reach]
        ends.append(self.main.centre.length)
        return [(a, b) for a, b in zip(ends[::2], ends[1::2]) if b > a]


def make_road_map(rng: np.random.Generator, drive: float, centre: tuple[float, float]) -> RoadMap:
    """A random road map for a drive of at most `drive` m, its main road centred on a point of the global frame."""
    main = Road(_main_curve(rng, drive, centre), lanes=int(rng.integers(1, 3)))
    road_map = RoadMap(main, _junctions(rng, main))
    for start, end in road_map.free_of_junctions(margin=0.0):
        _add_road(road_map, main, start, end)
    for junction in road_map.junctions:
        for arm in junction.arms.values():
            _add_road(road_map, arm, main.half_width + CORNER, arm.centre.length)
        _add_junction(road_map, junction)
    return road_map


def _main_curve(rng: np.random.Generator, drive: float, centre: tuple[float, float]) -> Curve:
    """Straight, bend, straight (crossing), bend, straight (T-junction), or the crossing before the first bend."""
    pieces = []
    signs = rng.choice([-1, 1], size=2)
    first = RUN_OUT + (10 if rng.random() < 0.6 else 45)
    for sign, straight in zip(signs, (first, 60.0)):
        radius = rng.uniform(60, 95)
        pieces += [(straight, 0.0), (radius * np.radians(rng.uniform(25, 50)), sign / radius)]
    length = 2 * RUN_OUT + drive
    pieces.append((max(30.0, length - sum(p[0] for p in pieces)), 0.0))
    curve = Curve((0.0, 0.0, float(rng.uniform(-np.pi, np.pi))), *map(tuple, zip(*pieces)))
    points = curve.points()
    shift = np.array(centre) - (points.min(axis=0) + points.max(axis=0)) / 2
    return Curve((*shift.tolist(), curve.start[2]), curve.lengths, curve.curvatures)


def _junctions(rng: np.random.Generator, main: Road) -> list[Junction]:
    knots = main.centre.knots
    early = knots[1] > RUN_OUT + 20  # room for a crossing before the first bend
    places = [(knots[1] - 28 if early else knots[2] + 30, (-1, 1))]
    outside = int(-np.sign(main.centre.curvatures[3]))
    if knots[5] - knots[4] > 60:
        places.append((knots[4] + 30, (outside,)))
    junctions = []
    for s, sides in places:
        x, y, yaw = main.centre.pose(s)
        arms = {}
        for side in sides:
            bend = float(rng.choice([-1, 1]) / 60)
            lengths = (45.0, 20.0, ARM_LENGTH - 65)
            curve = Curve(
                (float(x), float(y), float(yaw + side * np.pi / 2)), lengths, (0, bend, 0)
            )
            arms[side] = Road(curve, lanes=1)
        half_length = next(iter(arms.values())).half_width + CORNER
        junctions.append(Junction(float(s), arms, half_length))
    return junctions


def _add_road(road_map: RoadMap, road: Road, start: float, end: float) -> None:
    """Layers of a road between two arc lengths, cut where its curvature changes."""
    cuts = [start, *(k for k in road.centre.knots if start + 1 < k < end - 1), end]
    for a, b in pairwise(cuts):
        _add_stretch(road_map, road, road.centre.section(a, b))


def _add_stretch(road_map: RoadMap, road: Road, centre: Curve) -> None:
    half, driven = road.half_width, road.lanes * LANE_WIDTH
    segment = len(road_map.segments)
    road_map.segments.append((centre.strip(-half, half), False))
    road_map.road_dividers.append((centre.points(), segment))
    for forward in (True, False):
        curve = centre if forward else centre.reversed()  # in the direction of travel
        block = len(road_map.blocks)
        ends = [
            curve.pose(s, np.array([-driven, 0.0]))[:, :2] for s in ([0, 0], [curve.length] * 2)
        ]
        road_map.blocks.append(Block(curve.strip(-driven, 0), *ends, segment))
        for index in range(road.lanes):
            divider = -1
            if index + 1 < road.lanes:
                divider = len(road_map.lane_dividers)
                line = curve.points(-(index + 1) * LANE_WIDTH)
                road_map.lane_dividers.append((line, segment))
            lane = curve.offset(road.lane_offset(index, forward=True))
            left = len(road_map.lane_dividers) - 1 if index > 0 and divider < 0 else -1
            road_map.lanes.append(Lane(lane, block, left, divider))
        parking = curve.strip(-half, -driven)
        road_map.carparks.append((parking, float(curve.pose(curve.length / 2)[2]), block))
        road_map.walkways.append(curve.strip(-half - WALKWAY_WIDTH, -half))


def _add_junction(road_map: RoadMap, junction: Junction) -> None:
    main, half = road_map.main, road_map.main.half_width
    a = junction.half_length

    def place(along: float, left: float) -> np.ndarray:
        return main.centre.pose(junction.s + along, left)[:2]

    # The outline, counter-clockwise, and the walkways around its corners.
    segment = len(road_map.segments)
    outline = []
    for side in (-1, 1):
        along = np.array([-a, -(a - CORNER), a - CORNER, a]) * -side
        left = side * np.array([half, half + CORNER, half + CORNER, half])
        if side in junction.arms:
            outline += [place(u, v) for u, v in zip(along, left)]
            for u in (-1, 1):
                corner = [(a, half), (a - CORNER, half + CORNER)]
                corner += [(a - CORNER + WALKWAY_WIDTH, half + CORNER), (a, half + WALKWAY_WIDTH)]
                road_map.walkways.append(np.array([place(u * x, side * y) for x, y in corner]))
        else:
            outline += [place(along[0], left[0]), place(along[3], left[3])]
            section = main.centre.section(junction.s - a, junction.s + a)
            ends = sorted([side * half, side * (half + WALKWAY_WIDTH)])
            road_map.walkways.append(section.strip(*ends))
    road_map.segments.append((np.array(outline), True))

    # Crossings and stop lines: over the main road before and after, over each arm.
    for along in (-1, 1):
        section = main.centre.section(*sorted(junction.s + along * (a + d) for d in (0.8, 3.8)))
        road_map.crossings.append((section.strip(-half, half), segment))
        stop = main.centre.section(*sorted(junction.s + along * (a + d) for d in (4.8, 5.2)))
        lanes = sorted([0.0, along * main.lanes * LANE_WIDTH])
        light = main.centre.pose(junction.s - along * a, along * (half + 0.5))
        _add_stop_line(
            road_map, stop.strip(*lanes), main, junction.s + along * (a + 1), along, light
        )
    for side, arm in junction.arms.items():
        near, far = half + 0.6, half + WALKWAY_WIDTH
        reach = a - (near + far) / 2 + half
        crossing = [(-reach, near), (reach, near), (reach, far), (-reach, far)]
        polygon = np.array([place(-side * u, side * v) for u, v in crossing])
        road_map.crossings.append((polygon, segment))
        stop = arm.centre.section(half + CORNER + 0.4, half + CORNER + 0.8)
        light = main.centre.pose(junction.s - side * a, -side * (half + 0.5))
        _add_stop_line(road_map, stop.strip(0, LANE_WIDTH), arm, half + CORNER + 1, 1, light)

    # Lane connectors: straight on along the main road, the turns into and out of each arm, from arm to arm.
    inside = Road(main.centre.section(junction.s - a, junction.s + a), main.lanes)
    for forward in (True, False):
        through = [inside.lane(index, forward) for index in range(main.lanes)]
        road_map.connectors += [Lane(lane) for lane in through]
        for side, arm in junction.arms.items():
            into, out = arm.lane(0, forward=False), arm.lane(0, forward=True)
            right = (
                side < 0
            ) == forward  # the way in as well as the way out, and so from and to the outer lane
            lane = through[-1 if right else 0]
            road_map.connectors += [
                Lane(turn(lane.pose(0.0), out.pose(half + CORNER))),
                Lane(turn(into.pose(into.length - half - CORNER), lane.pose(lane.length))),
            ]
    if len(junction.arms) == 2:
        for side, arm in junction.arms.items():
            into, out = arm.lane(0, forward=False), junction.arms[-side].lane(0, forward=True)
            start, end = into.pose(into.length - half - CORNER), out.pose(half + CORNER)
            length = float(np.hypot(*(end - start)[:2]))
            road_map.connectors.append(Lane(Curve(tuple(start.tolist()), (length,), (0.0,))))


def _add_stop_line(
    road_map: RoadMap, polygon: np.ndarray, road: Road, s: float, along: int, light: np.ndarray
) -> None:
    """A stop line in front of the crossing added last, for the traffic that comes from `along` of the road."""
    position = road.centre.pose(s, along * LANE_WIDTH / 2)[:2]
    inbound = min(
        range(len(road_map.blocks)),
        key=lambda b: np.hypot(*(road_map.blocks[b].end_edge.mean(axis=0) - position)),
    )
    road_map.stop_lines.append((polygon, len(road_map.crossings) - 1, inbound, light))
