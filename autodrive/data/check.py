"""`autodrive data check`: reads every image and point cloud and lists the damaged ones."""

import argparse
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

from tqdm import tqdm

from .point_cloud import read_points
from .transforms import read_image


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--root", required=True, help="nuScenes folder: samples/, sweeps/")
    parser.add_argument("--workers", type=int, help="processes (default: all cores)")


def run(args: argparse.Namespace) -> None:
    damaged, total = check(args.root, args.workers)
    for problem in damaged:
        print(problem)
    if damaged:
        raise ValueError(f"{len(damaged)} of {total} files are damaged")
    print(f"{total} files are whole")


def check(root: str | Path, workers: int | None = None) -> tuple[list[str], int]:
    """One line for each damaged file below samples/ and sweeps/, and the number of files read."""
    root = Path(root)
    files = sorted(p for folder in ("samples", "sweeps") for p in (root / folder).rglob("*.*"))
    files = [
        str(p) for p in files if p.name.endswith((".jpg", ".pcd.bin")) and "RADAR" not in str(p)
    ]
    if not files:
        raise FileNotFoundError(f"{root} has no images or point clouds below samples/ and sweeps/")
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        found = list(
            tqdm(pool.map(_problem, files, chunksize=16), total=len(files), desc="reading")
        )
    return [problem for problem in found if problem], len(files)


def _problem(path: str) -> str:
    try:
        read_points(path) if path.endswith(".bin") else read_image(path)
    except (OSError, ValueError) as error:
        return str(error)
    return ""
