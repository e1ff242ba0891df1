"""One scene of the dataset: its place in the split, its clock, its files, and the recording of them."""

import hashlib
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from functools import cached_property
from pathlib import Path

import numpy as np

from autodrive.data.synth.sensors import Sensor, make_sensors
from autodrive.data.synth.world import World

KEY_FRAME_STEP = 500_000  # µs, 2 Hz
SWEEP_STEP = 50_000  # µs, 20 Hz
LOCATIONS = (
    "boston-seaport",
    "singapore-onenorth",
    "singapore-hollandvillage",
    "singapore-queenstown",
)


def token(*parts: object) -> str:
    """32 hexadecimal digits that depend on nothing but the arguments."""
    return hashlib.md5("/".join(map(str, parts)).encode()).hexdigest()


@dataclass(frozen=True)
class Shot:
    """One file of a sensor: its time (µs from the first key frame) and the key frame that it belongs to."""

    time: int
    key_frame: int
    is_key_frame: bool


@dataclass(frozen=True)
class Scene:
    """A scene before it is recorded; cheap to send to another process.

    Attributes:
        name: as in the official splits.
        index: in the dataset.
        centre: of its road map in the global frame, m.
        image_size: (width, height) px.
        duration: s.
    """

    name: str
    index: int
    seed: int
    location: str
    centre: tuple[float, float]
    image_size: tuple[int, int]
    duration: float
    description: str = field(
        default="Simulated drive: road with bends, junctions, traffic, work zones."
    )

    @cached_property
    def world(self) -> World:
        return World(self.seed, self.index, self.duration, self.centre)

    @cached_property
    def sensors(self) -> list[Sensor]:
        return make_sensors(np.random.default_rng([self.seed, self.index, 2]), self.image_size)

    @property
    def key_frames(self) -> int:
        return round(self.duration * 1e6) // KEY_FRAME_STEP

    @cached_property
    def _local_start(self) -> datetime:
        zone = timezone(timedelta(hours=-4 if self.location.startswith("boston") else 8))
        return datetime(2018, 8, 1, 10, 0, tzinfo=zone) + timedelta(hours=26 * self.index)

    @property
    def start(self) -> int:
        """Time of the first key frame, µs since 1970."""
        return int(self._local_start.timestamp()) * 1_000_000 + 547_590

    @property
    def log(self) -> str:
        vehicle = "n008" if self.location.startswith("boston") else "n015"
        return f"{vehicle}-{self._local_start.strftime('%Y-%m-%d-%H-%M-%S%z')}"

    def token(self, *parts: object) -> str:
        """A token of this scene's: 32 hexadecimal digits that depend on the seed, the scene and the arguments only."""
        return token(self.seed, self.index, self.name, *parts)

    def shots(self, sensor: Sensor) -> list[Shot]:
        """All files of a sensor in order of time; a sweep belongs to the key frame after it."""
        if sensor.intrinsic is not None:
            frames = range(self.key_frames)
            return [Shot(k * KEY_FRAME_STEP + sensor.delay, k, True) for k in frames]
        times = range(0, (self.key_frames - 1) * KEY_FRAME_STEP + 1, SWEEP_STEP)
        return [Shot(t, -(-t // KEY_FRAME_STEP), t % KEY_FRAME_STEP == 0) for t in times]

    def filename(self, sensor: Sensor, shot: Shot) -> str:
        """Relative to the root of the dataset."""
        folder = "samples" if shot.is_key_frame else "sweeps"
        ending = "pcd.bin" if sensor.intrinsic is None else "jpg"
        stem = f"{self.log}__{sensor.name}__{self.start + shot.time}"
        return str(Path(folder, sensor.name, f"{stem}.{ending}").as_posix())
