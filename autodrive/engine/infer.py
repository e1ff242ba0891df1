"""`autodrive infer`: predictions of a checkpoint as a file, and pictures of them."""

import argparse
from pathlib import Path

import numpy as np
from mmdet3d.structures import Det3DDataSample

from autodrive.data.files import write_json
from autodrive.data.info import files_root, load_infos
from autodrive.data.point_cloud import read_points
from autodrive.metrics.nuscenes_detection import prediction_of
from autodrive.viz.bev import bev_picture
from autodrive.viz.boxes import SceneBoxes
from autodrive.viz.cameras import camera_picture
from autodrive.viz.report import Report, save_image

from .config import load_config, set_data_root
from .evaluate import load_model, predict
from .train import add_common_arguments, select_device

MIN_SCORE = 0.25


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("config")
    parser.add_argument("checkpoint")
    parser.add_argument(
        "--data", required=True, help="prepared nuScenes folder, or a key-frame folder"
    )
    parser.add_argument("--split", default="val", choices=("train", "val"))
    parser.add_argument("--out", required=True, help="folder for predictions.json and pictures")
    parser.add_argument("--pictures", type=int, default=4, help="how many key frames to draw")
    parser.add_argument("--min-score", type=float, default=MIN_SCORE, help="of boxes in pictures")
    add_common_arguments(parser)


def run(args: argparse.Namespace) -> None:
    config = load_config(args.config, args.cfg_options)
    set_data_root(config, args.data)
    select_device(args.device)
    out = Path(args.out)
    predictions, pictures = {}, {}
    lidar = lidar_files(args.data, args.split)
    chosen = frames_to_draw(args.data, args.split, args.pictures)
    model = load_model(config, args.checkpoint)
    for index, sample in enumerate(predict(model, config, args.split)):
        found = prediction_of(sample)
        predictions[found.token] = {
            "boxes": found.boxes.round(4).tolist(),
            "scores": found.scores.round(5).tolist(),
            "labels": found.labels.tolist(),
        }
        if found.token in chosen:
            name = f"{args.split}_{index:03d}"
            pictures |= draw(sample, out, name, args.min_score, lidar.get(found.token))
    write_json(out / "predictions.json", predictions)
    report = Report(f"Predictions of {Path(args.checkpoint).name}")
    report.pictures("Key frames", pictures)
    report.write(out / "report.html")
    print(f"{len(predictions)} key frames: {out / 'predictions.json'}, {out / 'report.html'}")


def lidar_files(data_root: str | Path, split: str) -> dict[str, Path]:
    """The LIDAR_TOP file of each key frame of a split by token, where there is one."""
    infos = load_infos(data_root, split)
    root = files_root(data_root, infos)
    files = {i["token"]: root / i["lidar_points"]["lidar_path"] for i in infos["data_list"]}
    return {token: path for token, path in files.items() if path.is_file()}


def frames_to_draw(data_root: str | Path, split: str, wanted: int) -> set[str]:
    """Tokens of `wanted` key frames, evenly spread over a split; those with history first of all."""
    infos = load_infos(data_root, split)["data_list"]
    tokens = [info["token"] for info in infos if info["prev"]] or [info["token"] for info in infos]
    places = np.linspace(0, len(tokens) - 1, min(wanted, len(tokens))).round().astype(int)
    return {tokens[place] for place in places}


def draw(
    sample: Det3DDataSample,
    out: Path,
    name: str,
    min_score: float = MIN_SCORE,
    lidar_path: Path | None = None,
) -> dict[str, Path]:
    """Pictures of one key frame, cameras and BEV, as files; returns them by caption."""
    predicted = SceneBoxes.of(sample.pred_instances_3d, min_score)
    truth = SceneBoxes.of(sample.gt_instances_3d)
    points = read_points(lidar_path) if lidar_path else None
    cameras = camera_picture(sample.img_path, sample.ori_lidar2img, predicted, truth)
    bev = bev_picture(predicted, truth, points, title=name)
    note = f"predictions with a score of {min_score:g} or more"
    return {
        f"{name}, cameras: {note}, ground truth dashed": save_image(
            out / f"{name}_cameras.jpg", cameras
        ),
        f"{name}, from above: {note}, ground truth filled": save_image(
            out / f"{name}_bev.png", bev
        ),
    }
