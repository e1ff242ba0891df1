"""`autodrive demo`: from nothing to a trained model, its metrics and its pictures.

Stages: synthetic dataset, info files, training, evaluation on the training and on unseen scenes, report. A stage that
an earlier run with the same settings finished is not done again, and training goes on from its latest checkpoint.
"""

import argparse
import hashlib
import json
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from autodrive.data.files import write_json
from autodrive.data.info import info_path, load_infos

CONFIG = Path(__file__).parents[2] / "examples" / "bevformer" / "configs" / "nano.py"
PICTURES_PER_SPLIT = 3
SPLITS = {"train": "training scenes", "val": "unseen scenes"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--out", default="runs/demo", help="folder for everything the demo makes")
    parser.add_argument("--config", default=str(CONFIG), help="(default: BEVFormer nano)")
    parser.add_argument("--scenes", type=int, default=2, help="one in five, at least one, unseen")
    parser.add_argument("--duration", type=float, default=10, help="of a scene, s")
    parser.add_argument("--minutes", type=float, default=9, help="of training")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="auto", choices=("auto", "cpu", "cuda"))
    parser.add_argument("--fresh", action="store_true", help="forget an earlier run")
    parser.add_argument("--install-seconds", help="JSON file {stage: seconds} to add to the table")


def run(args: argparse.Namespace) -> None:
    demo(
        args.out,
        args.config,
        scenes=args.scenes,
        duration=args.duration,
        minutes=args.minutes,
        seed=args.seed,
        device=args.device,
        fresh=args.fresh,
        install_seconds=args.install_seconds,
    )


class Stages:
    """Times stages and remembers, in a file, which of them are done and for which settings."""

    def __init__(self, path: Path, settings: dict) -> None:
        self.path = path
        self.settings = settings
        self.done: list[str] = []
        self.seconds: dict[str, float] = {}
        state = json.loads(path.read_text()) if path.exists() else {}
        self.same = state.get("settings") == settings
        if self.same:
            self.done, self.seconds = state["done"], state["seconds"]

    @contextmanager
    def stage(self, name: str) -> Iterator[bool]:
        """`with stages.stage("train") as needed: if needed: …`; the time of interrupted runs is added up."""
        needed = name not in self.done
        print(f"==> {name}" + ("" if needed else ": done by an earlier run"), flush=True)
        started = time.monotonic()
        try:
            yield needed
            if needed:
                self.done.append(name)
        finally:
            if needed:
                spent = self.seconds.get(name, 0.0) + time.monotonic() - started
                self.seconds[name] = round(spent, 1)
                state = {"settings": self.settings, "done": self.done, "seconds": self.seconds}
                write_json(self.path, state, indent=1)


def demo(
    out: str | Path,
    config_path: str | Path = CONFIG,
    scenes: int = 2,
    duration: float = 10,
    size: tuple[int, int] = (800, 450),
    minutes: float = 9,
    seed: int = 0,
    device: str = "auto",
    fresh: bool = False,
    install_seconds: str | Path | None = None,
    splits: Sequence[str] = tuple(SPLITS),
) -> dict:
    """Runs all stages, evaluates `splits`; returns what it writes to `metrics.json`.

    Files in `out`: `data/`, `train/` (checkpoints, `losses.jsonl`), `pictures/`, `report.html`, and `metrics.json` as
    {"train": {"mAP", "NDS", …}, "val": {…}, "seconds": {stage: s}}.
    """
    from .config import load_config, set_data_root

    installed = read_seconds(install_seconds) if install_seconds else {}
    out = Path(out).resolve()
    config = load_config(config_path)
    settings = {
        "config": Path(config_path).name,
        "config_digest": hashlib.sha256(config.pretty_text.encode()).hexdigest()[:12],
        "scenes": scenes,
        "duration": duration,
        "size": list(size),
        "minutes": minutes,
        "seed": seed,
        "splits": list(splits),
    }
    data, work = out / "data", out / "train"
    stages = Stages(out / "stages.json", settings)
    if fresh or not stages.same:
        for folder in (data, work, out / "pictures", out / "metrics"):
            shutil.rmtree(folder, ignore_errors=True)
        stages.path.unlink(missing_ok=True)
        stages = Stages(stages.path, settings)

    with stages.stage("synthetic dataset") as needed:
        if needed:
            from autodrive.data.synth import write_dataset

            write_dataset(data, scenes, seed, size, duration=duration, overwrite=True)
    with stages.stage("info files") as needed:
        if needed:
            from autodrive.data.prepare import prepare

            prepare(data, next(data.glob("v1.0-*")).name)
    set_data_root(config, data)
    with stages.stage("training") as needed:
        if needed:
            from .train import train

            train(config, work, device, seed, resume=True, max_minutes=minutes)
    splits = [s for s in splits if info_path(data, s).exists() and load_infos(data, s)["data_list"]]
    for split in splits:
        with stages.stage(f"evaluation on {SPLITS[split]}") as needed:
            if needed:
                _evaluate_and_draw(config, data, work, out, split)
    metrics = {
        split: json.loads((out / "metrics" / split / "metrics_summary.json").read_text())
        for split in splits
    }
    with stages.stage("report") as needed:
        if needed:
            _write_report(out, config, metrics, settings, {**installed, **stages.seconds})
    result = {**metrics, "seconds": {**installed, **stages.seconds}}
    write_json(out / "metrics.json", result, indent=1)
    _print_tables(out, metrics, result["seconds"])
    return result


def read_seconds(path: str | Path) -> dict[str, float]:
    """Seconds by stage from a JSON file; nothing if there is no such file."""
    try:
        return {str(stage): float(s) for stage, s in json.loads(Path(path).read_text()).items()}
    except FileNotFoundError:
        return {}
    except (ValueError, AttributeError, TypeError):
        raise ValueError(f'{path} must be a JSON file of the form {{"stage": seconds}}') from None


def _evaluate_and_draw(config, data: Path, work: Path, out: Path, split: str) -> None:
    from autodrive.metrics.nuscenes_detection import evaluate_predictions, prediction_of

    from .checkpoint import latest_checkpoint
    from .evaluate import load_model, predict
    from .infer import draw, frames_to_draw, lidar_files

    lidar = lidar_files(data, split)
    chosen = frames_to_draw(data, split, PICTURES_PER_SPLIT)
    model = load_model(config, latest_checkpoint(work))
    predictions = []
    for index, sample in enumerate(predict(model, config, split)):
        predictions.append(prediction_of(sample))
        token = predictions[-1].token
        if token in chosen:
            name = f"{split}_{index:03d}"
            draw(sample, out / "pictures", name, lidar_path=lidar.get(token))
    evaluate_predictions(predictions, data, split, out_dir=out / "metrics" / split)


def _write_report(
    out: Path, config, metrics: dict[str, dict], settings: dict, seconds: dict[str, float]
) -> None:
    from autodrive.viz.curves import loss_picture, read_losses
    from autodrive.viz.report import Report, save_image

    from .evaluate import METRICS, summary_of_config

    rows = read_losses(out / "train" / "losses.jsonl")
    curve = save_image(out / "pictures" / "loss.png", loss_picture(rows))
    report = Report("BEVFormer on a synthetic nuScenes")
    report.text(
        "What this is",
        f"{settings['config']}, trained for {settings['minutes']:g} minutes ({rows[-1]['iter']} iterations) from "
        "random weights on simulated scenes, and evaluated with the official nuScenes detection metrics.",
    )
    report.table(
        "Metrics",
        ["", *(SPLITS[split] for split in metrics)],
        [[name, *(m.get(name) for m in metrics.values())] for name in METRICS],
    )
    report.pictures("Training", {"Loss over iterations, thick: smoothed": curve})
    for split in metrics:
        files = sorted((out / "pictures").glob(f"{split}_*"))
        report.pictures(
            f"Predictions on {SPLITS[split]}: solid; ground truth: dashed white, or filled from above",
            {path.stem.replace("_", " "): path for path in files},
        )
    report.table("Settings", ["", ""], list(summary_of_config(config).items()))
    report.table(
        "Time",
        ["stage", "seconds"],
        [*((name, float(s)) for name, s in seconds.items()), ("all", float(sum(seconds.values())))],
    )
    report.write(out / "report.html")


def _print_tables(out: Path, metrics: dict[str, dict], seconds: dict[str, float]) -> None:
    from .evaluate import metrics_table

    width = max(map(len, seconds))
    print("\nseconds of each stage")
    for name, value in [*seconds.items(), ("all", sum(seconds.values()))]:
        print(f"  {name.ljust(width)}  {value:7.1f}")
    print(f"\n{metrics_table({SPLITS[split]: values for split, values in metrics.items()})}\n")
    print(f"report: {out / 'report.html'}")
