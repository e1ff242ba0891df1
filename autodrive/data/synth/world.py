"""The simulated world of one scene: its road map, the ego's drive, and everything around it as a function of time.

Traffic follows lanes: all vehicles of a lane share one motion, so their gaps stay; the ego's lane moves as the ego
does. Parked vehicles, work zones with barriers and cones, and cycles stand along the kerbs of the whole corridor;
pedestrians walk or stand on the walkways. Nothing ever overlaps.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from autodrive.data.synth.curve import Curve
from autodrive.data.synth.objects import Part, Shape, make_parts, make_shape, make_size
from autodrive.data.synth.road_map import (
    ARM_LENGTH,
    CORNER,
    PARKING_WIDTH,
    RUN_OUT,
    WALKWAY_WIDTH,
    Road,
    RoadMap,
    make_road_map,
)

MAX_SPEED = 12.0  # of the ego, m/s
# What stands along the kerbs: shuffled, placed, and started again.
KERB_ITEMS = (
    ("vehicle.car",),
    ("vehicle.truck",),
    ("vehicle.bus.rigid",),
    ("vehicle.trailer",),
    ("vehicle.motorcycle",),
    ("vehicle.bicycle",),
    ("vehicle.bicycle",),
    ("movable_object.barrier",) * 2
    + ("vehicle.construction",)
    + ("movable_object.trafficcone",) * 2,
    ("movable_object.trafficcone",) * 3,
    ("movable_object.barrier",) * 3,
)
# What drives: shuffled and taken one after the other as well. Half of the trucks draw a trailer.
TRAFFIC = (
    *("vehicle.car",) * 6,
    *("vehicle.truck",) * 2,
    *("vehicle.bus.rigid", "vehicle.motorcycle", "vehicle.motorcycle"),
    *("vehicle.bicycle", "vehicle.bicycle"),
)
COUPLING = 0.8  # m, between a truck and its trailer


@dataclass(frozen=True)
class Motion:
    """Speed `speed + swing·sin(rate·t + phase)`, m/s."""

    speed: float
    swing: float = 0.0
    rate: float = 0.0
    phase: float = 0.0

    def distance(self, t: np.ndarray) -> np.ndarray:
        if not self.rate:
            return self.speed * t
        cosines = np.cos(self.phase) - np.cos(self.rate * t + self.phase)
        return self.speed * t + self.swing / self.rate * cosines

    def speed_at(self, t: np.ndarray) -> np.ndarray:
        return self.speed + self.swing * np.sin(self.rate * t + self.phase)

    def acceleration_at(self, t: np.ndarray) -> np.ndarray:
        return self.swing * self.rate * np.cos(self.rate * t + self.phase)


STILL = Motion(0.0)


@dataclass(frozen=True)
class Actor:
    """An annotated object: a box (w, l, h in m) whose centre moves along a curve from arc length `start`."""

    category: str
    size: tuple[float, float, float]
    parts: tuple[Part, ...]
    curve: Curve
    start: float
    motion: Motion = STILL
    turned: float = 0.0  # yaw against the curve, rad
    attribute: str = ""

    @cached_property
    def shape(self) -> Shape:
        return make_shape(self.parts, self.size)

    def pose(self, t: float | np.ndarray) -> np.ndarray:
        """(..., 3) x, y of the box centre, yaw at times `t` (...), s."""
        pose = self.curve.pose(self.start + self.motion.distance(np.asarray(t)))
        pose[..., 2] += self.turned
        return pose

    def on_road(self, t: float | np.ndarray) -> np.ndarray:
        """Whether the box is on its curve at `t`: traffic enters and leaves at the ends of the roads."""
        s = self.start + self.motion.distance(np.asarray(t))
        margin = self.size[1] / 2
        return (s >= margin) & (s <= self.curve.length - margin)


@dataclass(frozen=True)
class Ego:
    """The ego's drive along a lane; the pose is that of the middle of its rear axle."""

    curve: Curve
    start: float
    motion: Motion

    def s(self, t: float | np.ndarray) -> np.ndarray:
        return self.start + self.motion.distance(np.asarray(t, dtype=float))

    def pose(self, t: float | np.ndarray) -> np.ndarray:
        """(..., 3) x, y, yaw."""
        return self.curve.pose(self.s(t))

    def yaw_rate(self, t: float | np.ndarray) -> np.ndarray:
        return self.motion.speed_at(t) * self.curve.curvature(self.s(t))


@dataclass(frozen=True)
class Light:
    """The light of a scene: sun direction (towards the sun), strengths, and colours of the sky (RGB)."""

    sun: tuple[float, float, float]
    ambient: float
    brightness: float
    zenith: tuple[float, float, float]
    horizon: tuple[float, float, float]


class World:
    """One scene, made from a seed.

    Args:
        seed: of the dataset.
        index: of the scene in the dataset.
        duration: of the drive, s.
        centre: of the road map in the global frame, m.
    """

    def __init__(self, seed: int, index: int, duration: float, centre: tuple[float, float]):
        self.seed, self.index, self.duration = seed, index, duration
        rng = np.random.default_rng([seed, index])
        speed = float(rng.uniform(6.3, 9.8))
        rate = float(rng.uniform(0.35, 0.6))
        motion = Motion(speed, float(rng.uniform(0.5, 1.2)), rate, float(rng.uniform(0, 6.28)))
        self.road_map: RoadMap = make_road_map(rng, MAX_SPEED * duration, centre)
        road = self.road_map.main
        self._ego_lane = int(rng.integers(road.lanes))
        self.ego = Ego(road.lane(self._ego_lane, forward=True), RUN_OUT, motion)
        self.light = _make_light(rng)
        self.actors: list[Actor] = [
            *self._kerb_objects(rng),
            *self._traffic(rng),
            *self._walkers(rng),
            *self._side_roads(rng),
        ]
        self._still = np.array([actor.pose(0.0) for actor in self.actors])
        self._files: dict[
            tuple[int, int], list[int]
        ] = {}  # who moves alike: curve, motion -> actors
        for i, actor in enumerate(self.actors):
            if actor.motion != STILL:
                self._files.setdefault((id(actor.curve), id(actor.motion)), []).append(i)

    def poses(self, t: float) -> tuple[np.ndarray, np.ndarray]:
        """Poses (A, 3) x, y, yaw of all actors at time `t`, and (A,) bool, whether they are on their roads."""
        poses, present = self._still.copy(), np.ones(len(self.actors), bool)
        for file in self._files.values():
            actors = [self.actors[i] for i in file]
            curve, motion = actors[0].curve, actors[0].motion
            s = np.array([actor.start for actor in actors]) + motion.distance(t)
            margin = np.array([actor.size[1] for actor in actors]) / 2
            poses[file] = curve.pose(s)
            present[file] = (s >= margin) & (s <= curve.length - margin)
        return poses, present

    def _kerb_objects(self, rng: np.random.Generator) -> list[Actor]:
        """Rows of parked vehicles and work zones, right and left filled side by side from one shuffled bag."""
        road = self.road_map.main
        actors: list[Actor] = []
        bag: list[int] = []
        for start, end in self.road_map.free_of_junctions(margin=6.0):
            at = {-1: start, 1: start}
            while min(at.values()) < end:
                side = min(at, key=at.get)
                bag = bag or rng.permutation(len(KERB_ITEMS)).tolist()
                placed, at[side] = self._place(rng, road, side, at[side], end, KERB_ITEMS[bag[-1]])
                if placed:
                    bag.pop()
                    actors += placed
        return actors

    def _place(
        self,
        rng: np.random.Generator,
        road: Road,
        side: int,
        at: float,
        end: float,
        categories: tuple[str, ...],
    ) -> tuple[list[Actor], float]:
        """Puts objects one behind the other into the parking strip, from arc length `at` on.

        Returns:
            The objects (none if there is no room before `end`), and the arc length behind them.
        """
        left = side * (road.half_width - PARKING_WIDTH / 2)
        curve = road.centre.offset(left)
        s = float(np.interp(at, road.centre.knots, curve.knots))
        limit = float(np.interp(end, road.centre.knots, curve.knots))
        actors = []
        for category in categories:
            size = make_size(category, rng)
            across = category == "movable_object.barrier"  # its heading is across the road
            length = size[0] if across else size[1]
            s += float(rng.uniform(0.25, 0.6) if across else rng.uniform(1.2, 2.4))
            turned = 0.0 if side < 0 else np.pi
            if across:
                turned += np.pi / 2
            if category in ("vehicle.motorcycle", "vehicle.bicycle"):
                turned += float(rng.uniform(-0.4, 0.4))
            actors.append(
                Actor(
                    category,
                    size,
                    tuple(make_parts(category, rng)),
                    curve,
                    s + length / 2,
                    turned=turned,
                    attribute=_attribute(category, moving=False),
                )
            )
            s += length
        s += float(rng.uniform(0.3, 2.0))
        if s > limit:
            return [], end
        return actors, float(np.interp(s, curve.knots, road.centre.knots))

    def _traffic(self, rng: np.random.Generator) -> list[Actor]:
        """Vehicles in every lane of the main road, nothing where the ego is."""
        actors: list[Actor] = []
        bag: list[str] = []
        road = self.road_map.main
        for forward in (True, False):
            for index in range(road.lanes):
                own = forward and index == self._ego_lane
                curve = road.lane(index, forward)
                motion = self.ego.motion if own else Motion(float(rng.uniform(5.0, 10.5)))
                travelled = float(motion.distance(np.array(self.duration)))
                s = -travelled + float(rng.uniform(0, 20))
                while s < curve.length:
                    bag = bag or rng.permutation(TRAFFIC).tolist()
                    category = bag.pop()
                    train = [category]
                    if category == "vehicle.truck" and rng.random() < 0.5:
                        train.insert(0, "vehicle.trailer")
                    sizes = [make_size(c, rng) for c in train]
                    length = sum(size[1] for size in sizes) + COUPLING * (len(train) - 1)
                    # The ego reaches from 1 m behind its rear axle to 4 m before it.
                    if own and -length - 9 < s - self.ego.start < 14:
                        s = self.ego.start + float(rng.uniform(14, 24))
                    for part, size in zip(train, sizes, strict=True):
                        parts = tuple(make_parts(part, rng, rider=True))
                        attribute = _attribute(part, moving=True)
                        where = curve, s + size[1] / 2, motion
                        actors.append(Actor(part, size, parts, *where, attribute=attribute))
                        s += size[1] + COUPLING
                    s += float(rng.uniform(18, 50))
        return actors

    def _walkers(self, rng: np.random.Generator) -> list[Actor]:
        """Pedestrians in three files on each walkway of the main road: standing, and walking both ways."""
        actors = []
        road = self.road_map.main
        for side in (-1, 1):
            for file, walking in enumerate((0, 1, -1)):
                left = side * (road.half_width + WALKWAY_WIDTH * (file + 0.5) / 3)
                curve = road.centre.offset(left)
                if walking < 0:
                    curve = curve.reversed()
                motion = Motion(float(rng.uniform(0.9, 1.7))) if walking else STILL
                s = float(rng.uniform(2, 20))
                while s < curve.length - 5:
                    category = _pedestrian_category(rng)
                    near_junction = walking == 0 and not any(
                        a < s * road.centre.length / curve.length < b
                        for a, b in self.road_map.free_of_junctions(2.0)
                    )
                    if not near_junction:
                        actors.append(
                            Actor(
                                category,
                                make_size(category, rng),
                                tuple(make_parts(category, rng)),
                                curve,
                                s,
                                motion,
                                0.0 if walking else float(rng.uniform(-np.pi, np.pi)),
                                "pedestrian.moving" if walking else "pedestrian.standing",
                            )
                        )
                    s += float(
                        rng.uniform(1.6, 2.4) if rng.random() < 0.15 else rng.uniform(38, 80)
                    )
        return actors

    def _side_roads(self, rng: np.random.Generator) -> list[Actor]:
        """Vehicles that wait at the junctions, and a few things parked behind them."""
        actors: list[Actor] = []
        edge = self.road_map.main.half_width + CORNER
        for junction in self.road_map.junctions:
            for arm in junction.arms.values():
                inbound = arm.lane(0, forward=False)
                s = inbound.length - edge - 1.5
                for _ in range(int(rng.integers(1, 3))):
                    category = str(rng.choice(["vehicle.car", "vehicle.truck", "vehicle.car"]))
                    size = make_size(category, rng)
                    parts = tuple(make_parts(category, rng))
                    middle = s - size[1] / 2
                    waiting = "vehicle.stopped"
                    actors.append(Actor(category, size, parts, inbound, middle, attribute=waiting))
                    s -= size[1] + float(rng.uniform(1.5, 3.0))
                for side in (-1, 1):
                    at = edge + 4
                    for item in rng.permutation(len(KERB_ITEMS))[:3]:
                        placed, at = self._place(rng, arm, side, at, ARM_LENGTH, KERB_ITEMS[item])
                        actors += placed
        return actors


def _attribute(category: str, moving: bool) -> str:
    if category in ("vehicle.motorcycle", "vehicle.bicycle"):
        return "cycle.with_rider" if moving else "cycle.without_rider"
    if category.startswith("vehicle."):
        return "vehicle.moving" if moving else "vehicle.parked"
    return ""


def _pedestrian_category(rng: np.random.Generator) -> str:
    kinds = ["adult", "child", "construction_worker"]
    return "human.pedestrian." + str(rng.choice(kinds, p=[0.76, 0.1, 0.14]))


def _make_light(rng: np.random.Generator) -> Light:
    azimuth, height = rng.uniform(-np.pi, np.pi), np.radians(rng.uniform(30, 65))
    sun = (np.cos(azimuth) * np.cos(height), np.sin(azimuth) * np.cos(height), np.sin(height))
    cloud = float(rng.uniform(0, 1))
    blue, grey = np.array([92, 140, 205]), np.array([168, 176, 184])
    zenith = (1 - cloud) * blue + cloud * grey
    horizon = (1 - cloud) * np.array([196, 212, 226]) + cloud * np.array([206, 206, 204])
    return Light(
        tuple(float(c) for c in sun),
        ambient=0.55 + 0.2 * cloud,
        brightness=float(rng.uniform(0.86, 1.05)),
        zenith=tuple(zenith.tolist()),
        horizon=tuple(horizon.tolist()),
    )
