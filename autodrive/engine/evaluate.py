"""`autodrive eval`: predictions of a checkpoint for a split, and the official metrics of them."""

import argparse
import math
from collections.abc import Iterator
from pathlib import Path

import torch
from mmdet3d.structures import Det3DDataSample
from mmengine.config import Config
from mmengine.dist import all_gather_object, is_main_process
from mmengine.registry import DATASETS, MODELS
from torch.utils.data import DataLoader

from autodrive.data.classes import CLASSES
from autodrive.data.sampler import SceneSampler
from autodrive.metrics.nuscenes_detection import Prediction, evaluate_predictions, prediction_of

from .checkpoint import load_weights
from .config import load_config, set_data_root, set_split
from .precision import set_environment, speed_options, speed_up
from .progress import track
from .train import add_common_arguments, select_device

METRICS = ("mAP", "NDS", "mATE", "mASE", "mAOE", "mAVE", "mAAE", *(f"AP/{c}" for c in CLASSES))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("config")
    parser.add_argument("checkpoint")
    parser.add_argument(
        "--data", required=True, help="prepared nuScenes folder, or a key-frame folder"
    )
    parser.add_argument("--split", default="val", choices=("train", "val"))
    parser.add_argument("--out", help="folder for results_nusc.json and metrics_summary.json")
    add_common_arguments(parser)


def run(args: argparse.Namespace) -> None:
    config = load_config(args.config, args.cfg_options)
    set_data_root(config, args.data)
    metrics = evaluate(config, args.checkpoint, args.data, args.split, args.out, args.device)
    if is_main_process():
        print(metrics_table({args.split: metrics}))


def evaluate(
    config: Config,
    checkpoint: str | Path,
    data_root: str | Path,
    split: str = "val",
    out_dir: str | Path | None = None,
    device: str = "auto",
) -> dict[str, float]:
    """Metrics of a checkpoint on a split; under torchrun the scenes are shared among the processes."""
    select_device(device)
    model = load_model(config, checkpoint)
    found = [prediction_of(sample) for sample in predict(model, config, split)]
    gathered: list[Prediction] = [p for part in all_gather_object(found) for p in part]
    if not is_main_process():
        return {}
    return evaluate_predictions(gathered, data_root, split, out_dir=out_dir)


def load_model(config: Config, checkpoint: str | Path) -> torch.nn.Module:
    """The model of a config with the weights of a checkpoint, in eval mode, on the GPU if there is one."""
    model = MODELS.build(config.model)
    load_weights(model, checkpoint)
    speed = speed_options(config)
    set_environment(speed)
    speed_up(model, speed)
    return model.to("cuda" if torch.cuda.is_available() else "cpu").eval()


@torch.no_grad()
def predict(
    model: torch.nn.Module, config: Config, split: str = "val"
) -> Iterator[Det3DDataSample]:
    """Data samples with predictions for the key frames of a split, in order of time, scene by scene."""
    set_split(config, split)
    settings = config.val_dataloader
    dataset = DATASETS.build(settings.dataset)
    loader = DataLoader(
        dataset,
        batch_size=1,
        sampler=SceneSampler(dataset),
        num_workers=settings.get("num_workers", 0),
        collate_fn=list,
    )
    for (item,) in track(loader, f"predicting {split}", len(loader), "key frames"):
        batch = {"inputs": {"img": [item["inputs"]["img"]]}, "data_samples": [item["data_samples"]]}
        batch = model.data_preprocessor(batch, False)
        yield from model(**batch, mode="predict")


def metrics_table(results: dict[str, dict[str, float]]) -> str:
    """Metrics of one or more splits as an aligned text table, a column per split."""
    rows = [["", *results]]
    for name in METRICS:
        values = [metrics.get(name, math.nan) for metrics in results.values()]
        rows.append([name, *("-" if math.isnan(v) else f"{v:.3f}" for v in values)])
    widths = [max(map(len, column)) for column in zip(*rows)]
    return "\n".join(
        "  ".join(
            cell.ljust(w) if i == 0 else cell.rjust(w)
            for i, (cell, w) in enumerate(zip(row, widths))
        )
        for row in rows
    )


def summary_of_config(config: Config) -> dict[str, str]:
    """What a reader of a report wants to know of a model and how it was trained, and with what."""
    with torch.device("meta"):
        model = MODELS.build(config.model)
    head, loader = config.model.get("pts_bbox_head", {}), config.train_dataloader
    parameters = sum(p.numel() for p in model.parameters())
    optimizer = config.optim_wrapper.optimizer
    rows = {
        "model": type(model).__name__,
        "parameters": f"{parameters / 1e6:.2f} million",
        "backbone": f"ResNet-{config.model.img_backbone.depth}",
        "BEV": f"{head.get('bev_h')} x {head.get('bev_w')} cells",
        "layers": f"{head.get('encoder_layers')} encoder, {head.get('decoder_layers')} decoder",
        "learning rate": f"{optimizer.lr:g}",
        "batch": f"{loader.batch_size} x {loader.dataset.queue_length} key frames",
        "speed": ", ".join(k for k, v in speed_options(config).items() if v) or "no switch on",
        "device": torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU",
        "torch": torch.__version__,
    }
    return {key: value for key, value in rows.items() if "None" not in value}
