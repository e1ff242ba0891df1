"""`autodrive data synth`: a dataset in the layout of nuScenes v1.0, rendered from a simulated world.

The official devkit loads it, its map and CAN bus APIs read it, its evaluators score on it. Differences from recorded
data: the ground is flat, cameras have no distortion and only key frames, sweeps are taken at one instant, there is no
radar, traffic goes straight on at junctions and keeps to the right at every location.
"""

import argparse
import multiprocessing
import os
import shutil
import signal
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

import cv2
import numpy as np
from tqdm import tqdm

from autodrive.data.files import write_json
from autodrive.data.synth.can_bus import can_bus_messages
from autodrive.data.synth.map_expansion import MapExpansion
from autodrive.data.synth.recording import Seen, record
from autodrive.data.synth.road_map import ARM_LENGTH, RUN_OUT, make_road_map
from autodrive.data.synth.scene import LOCATIONS, Scene
from autodrive.data.synth.tables import make_tables
from autodrive.data.synth.world import MAX_SPEED

MINI_SCENES = 10  # at most, in v1.0-mini
_CHUNK = 4  # key frames that a worker records at once


def write_dataset(
    out: str | Path,
    scenes: int = 2,
    seed: int = 0,
    image_size: tuple[int, int] = (800, 450),
    duration: float = 10.0,
    workers: int | None = None,
    overwrite: bool = False,
    progress: bool = True,
) -> str:
    """Writes a dataset; the same arguments give the same bytes, however many workers there are.

    Args:
        out: folder of the dataset; it appears when everything is written.
        scenes: how many. Up to 10 make a v1.0-mini with scenes of mini_train and mini_val, more a v1.0-trainval; one in
            five (at least one of two) is for validation.
        seed: of the world.
        image_size: (width, height) of the camera pictures, px.
        duration: of a scene, s, 1 to 20.
        workers: processes; all cores by default.
        overwrite: replace `out` if there is something in it.

    Returns:
        the version, "v1.0-mini" or "v1.0-trainval".

    Raises:
        FileExistsError: `out` is not empty.
        ValueError: an argument is out of range.
    """
    out = Path(out).absolute()
    if scenes < 1:
        raise ValueError(f"scenes must be at least 1, got {scenes}")
    if min(image_size) < 32:
        raise ValueError(f"image_size must be at least 32x32, got {image_size[0]}x{image_size[1]}")
    if not 1 <= duration <= 20:
        raise ValueError(f"duration must be from 1 to 20 s, got {duration:g}")
    if seed < 0:
        raise ValueError(f"seed must not be negative, got {seed}")
    if workers is not None and workers < 1:
        raise ValueError(f"workers must be at least 1, got {workers}")
    _check_free(out, overwrite)
    version, planned, canvases = plan(scenes, seed, image_size, duration)
    temporary = out.with_name(f".{out.name}.{os.getpid()}.tmp")
    try:
        for scene in planned:
            for sensor in scene.sensors:
                (temporary / "samples" / sensor.name).mkdir(parents=True, exist_ok=True)
        (temporary / "sweeps" / "LIDAR_TOP").mkdir(parents=True)
        masks = _write_maps(temporary, planned, canvases)
        for scene in planned:
            messages = can_bus_messages(scene.world.ego, scene.start, duration)
            for kind, content in messages.items():
                write_json(temporary / "can_bus" / f"{scene.name}_{kind}.json", content)
        seen = _record_all(planned, temporary, workers or os.cpu_count() or 1, progress)
        for name, rows in make_tables(planned, seen, masks).items():
            write_json(temporary / version / f"{name}.json", rows, indent=0)
        _check_free(out, overwrite)  # again: writing took a while
        if out.is_dir():
            shutil.rmtree(out)
        os.replace(temporary, out)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return version


def _check_free(out: Path, overwrite: bool) -> None:
    if out.exists() and not out.is_dir():
        raise FileExistsError(f"{out} is a file; choose a folder")
    if out.is_dir() and any(out.iterdir()) and not overwrite:
        raise FileExistsError(f"{out} is not empty; choose another folder, or overwrite it")


def scene_names(count: int) -> tuple[str, list[str]]:
    """The version of a dataset of `count` scenes, and their names, those for training first."""
    from nuscenes.utils import splits  # slow to import: it brings the whole devkit

    version = "v1.0-mini" if count <= MINI_SCENES else "v1.0-trainval"
    train, val = (
        (splits.mini_train, splits.mini_val) if count <= MINI_SCENES else (splits.train, splits.val)
    )
    # The devkit refuses the CAN bus of these.
    without_can_bus = {f"scene-{i:04d}" for i in (*range(161, 177), *range(309, 315))}
    train, val = ([name for name in names if name not in without_can_bus] for names in (train, val))
    for_val = max(1, count // 5) if count > 1 else 0
    if for_val > len(val) or count - for_val > len(train):
        raise ValueError(f"scenes must be at most {len(val) * 5}, got {count}")
    return version, [*train[: count - for_val], *val[:for_val]]


def plan(
    count: int, seed: int, image_size: tuple[int, int], duration: float
) -> tuple[str, list[Scene], dict[str, tuple[float, float]]]:
    """The version, the scenes, and the canvas (m) of each location: road maps lie on it in square tiles."""
    version, names = scene_names(count)
    tile = float(np.ceil(2 * RUN_OUT + MAX_SPEED * duration + ARM_LENGTH))
    scenes = []
    for index, name in enumerate(names):
        row, column = divmod(index // len(LOCATIONS), 3)
        centre = (tile * (column + 0.5), tile * (row + 0.5))
        location = LOCATIONS[index % len(LOCATIONS)]
        scenes.append(Scene(name, index, seed, location, centre, tuple(image_size), duration))
    canvases = {}
    for location in LOCATIONS:
        centres = [scene.centre for scene in scenes if scene.location == location]
        edges = np.max([*centres, (tile / 2, tile / 2)], axis=0) + tile / 2
        canvases[location] = tuple(edges.tolist())
    return version, scenes, canvases


def _write_maps(
    root: Path, scenes: list[Scene], canvases: dict[str, tuple[float, float]]
) -> dict[str, str]:
    """Vector maps and masks of all four locations; one without scenes gets a road map of its own."""
    masks = {}
    for number, (location, canvas) in enumerate(canvases.items()):
        expansion = MapExpansion(location, canvas)
        road_maps = [scene.world.road_map for scene in scenes if scene.location == location]
        if not road_maps:
            rng = np.random.default_rng([scenes[0].seed, len(scenes) + number])
            drive = MAX_SPEED * scenes[0].duration
            road_maps = [make_road_map(rng, drive, (canvas[0] / 2, canvas[1] / 2))]
        for road_map in road_maps:
            expansion.add(road_map)
        write_json(root / "maps" / "expansion" / f"{location}.json", expansion.as_json())
        masks[location] = f"maps/{location}.png"
        _, content = cv2.imencode(".png", expansion.mask(), [cv2.IMWRITE_PNG_COMPRESSION, 3])
        (root / masks[location]).write_bytes(content.tobytes())
    return masks


def _record_all(scenes: list[Scene], root: Path, workers: int, progress: bool) -> list[list[Seen]]:
    """What was seen, per scene and key frame."""
    jobs = [
        (s, scene, k, min(k + _CHUNK, scene.key_frames), root)
        for s, scene in enumerate(scenes)
        for k in range(0, scene.key_frames, _CHUNK)
    ]
    seen: list[list] = [[None] * scene.key_frames for scene in scenes]
    total = sum(scene.key_frames for scene in scenes)
    with tqdm(total=total, desc="recording", unit="frame", disable=not progress) as bar:
        for s, first, frames in _run(jobs, min(workers, len(jobs))):
            seen[s][first : first + len(frames)] = frames
            bar.update(len(frames))
    return seen


def _run(jobs: list[tuple], workers: int) -> Iterator[tuple[int, int, list[Seen]]]:
    if workers == 1:
        yield from map(_record_job, jobs)
        return
    context = multiprocessing.get_context("spawn")
    # Ctrl-C ends the workers at once and without a word; the parent cleans up.
    on_start = signal.signal, (signal.SIGINT, signal.SIG_DFL)
    pool = ProcessPoolExecutor(workers, context, *on_start)
    try:
        for done in as_completed([pool.submit(_record_job, job) for job in jobs]):
            yield done.result()
    finally:
        pool.shutdown(cancel_futures=True)


def _record_job(job: tuple) -> tuple[int, int, list[Seen]]:
    index, scene, first, last, root = job
    return index, first, record(scene, first, last, root)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `autodrive data synth`."""
    parser.add_argument("--out", required=True, metavar="DIR", help="folder of the dataset")
    parser.add_argument("--scenes", type=int, default=2, help="number of scenes (default: 2)")
    parser.add_argument("--seed", type=int, default=0, help="of the world (default: 0)")
    parser.add_argument(
        "--image-size", type=_size, default="800x450", metavar="WxH", help="px (default: 800x450)"
    )
    parser.add_argument("--duration", type=float, default=10.0, help="of a scene, s (default: 10)")
    parser.add_argument("--workers", type=int, help="processes (default: all cores)")
    parser.add_argument("--overwrite", action="store_true", help="replace what is in the folder")


def run(args: argparse.Namespace) -> None:
    version = write_dataset(
        args.out,
        args.scenes,
        args.seed,
        args.image_size,
        args.duration,
        args.workers,
        args.overwrite,
    )
    print(f"wrote {args.scenes} scenes to {args.out}, version {version}")


def _size(text: str) -> tuple[int, int]:
    try:
        width, height = map(int, text.lower().split("x"))
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected WxH, as 800x450, got {text!r}") from None
    return width, height
