"""A training of seconds with all that makes resuming hard: dropout, augmentation, warm-up, cosine, EMA, validation.

python -m tests.autodrive.toy_training WORK_DIR [--resume] [--seconds-per-iteration 0.1] ...
"""

import argparse
import time
from pathlib import Path

import numpy as np
import torch
from mmengine.config import Config
from mmengine.dist import get_rank
from mmengine.evaluator import BaseMetric
from mmengine.hooks import Hook
from mmengine.model import BaseModel
from mmengine.registry import DATASETS, HOOKS, METRICS, MODELS
from torch import nn
from torch.utils.data import Dataset

import autodrive.data.sampler  # noqa: F401 (registers the samplers)
from autodrive.engine.train import train

SAMPLES = 21  # no multiple of the batch size: epochs end within a batch


@DATASETS.register_module()
class ToySamples(Dataset):
    """Noise that depends on (seed, epoch, index), as augmented images do."""

    metainfo: dict = {}  # noqa: RUF012

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index):
        seed, epoch, index = index if isinstance(index, tuple) else (0, 0, index)
        rng = np.random.default_rng([seed, epoch, index])
        x = rng.normal(size=4).astype(np.float32)
        return {"inputs": torch.from_numpy(x), "data_samples": float(x.sum()), "index": index}


@MODELS.register_module()
class ToyModel(BaseModel):
    def __init__(self, width: int = 8, use_norm: bool = True) -> None:
        super().__init__()
        norm = nn.BatchNorm1d(width) if use_norm else nn.Identity()
        self.layers = nn.Sequential(
            nn.Linear(4, width), norm, nn.ReLU(), nn.Dropout(0.3), nn.Linear(width, 1)
        )

    def forward(self, inputs, data_samples, mode="tensor", index=None):
        x = torch.stack(inputs)
        if mode != "loss":
            return list(self.layers(x))
        y = self.layers(x + 0.1 * torch.randn(4))
        target = torch.tensor(data_samples, dtype=torch.float32)[:, None]
        return {"loss_toy": (y - target).square().mean()}


@METRICS.register_module()
class ToyMetric(BaseMetric):
    """Larger is better; how far the weights went from zero, which changes in training."""

    def process(self, data_batch, data_samples) -> None:
        self.results.extend(float(y) for y in data_samples)

    def compute_metrics(self, results) -> dict[str, float]:
        return {"score": float(np.mean(results))}


@HOOKS.register_module()
class Slow(Hook):
    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def before_train_iter(self, runner, batch_idx, data_batch=None) -> None:
        time.sleep(self.seconds)


@HOOKS.register_module()
class Recorder(Hook):
    """Which samples every iteration saw, as `samples_<rank>.txt`."""

    def before_train_iter(self, runner, batch_idx, data_batch=None) -> None:
        with (Path(runner.work_dir) / f"samples_{get_rank()}.txt").open("a") as file:
            file.write(f"{runner.iter} {' '.join(map(str, data_batch['index']))}\n")


def toy_config(max_iters: int = 20, workers: int = 0, validate: bool = True, **model) -> Config:
    def loader(sampler):
        return dict(
            batch_size=2,
            num_workers=workers,
            sampler=sampler,
            dataset=dict(type="ToySamples"),
        )

    config = dict(
        model=dict(type="ToyModel", **model),
        train_dataloader=loader(dict(type="QueueSampler")),
        train_cfg=dict(type="TrainLoop", max_iters=max_iters),
        optim_wrapper=dict(
            type="OptimWrapper",
            optimizer=dict(type="AdamW", lr=0.01),
            clip_grad=dict(max_norm=1.0),
        ),
        param_scheduler=[
            dict(type="LinearLR", start_factor=0.1, by_epoch=False, begin=0, end=7),
            dict(type="CosineAnnealingLR", by_epoch=True, T_max=3, convert_to_iter_based=False),
        ],
        checkpoint=dict(interval=5, keep=2, best="score"),
        custom_hooks=[dict(type="EMAHook"), dict(type="Recorder")],
    )
    if validate:
        config |= dict(
            val_dataloader=loader(dict(type="DefaultSampler", shuffle=False)),
            val_cfg=dict(type="ValLoop"),
            val_evaluator=dict(type="ToyMetric"),
        )
    return Config(config)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("work_dir")
    parser.add_argument("--max-iters", type=int, default=20)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--seconds-per-iteration", type=float, default=0.0)
    parser.add_argument("--max-minutes", type=float)
    parser.add_argument("--no-validation", action="store_true")
    args = parser.parse_args()
    torch.set_num_threads(1)
    config = toy_config(args.max_iters, args.workers, validate=not args.no_validation)
    config.custom_hooks.append(dict(type="Slow", seconds=args.seconds_per_iteration))
    train(
        config,
        args.work_dir,
        device="cpu",
        resume=args.resume,
        max_minutes=args.max_minutes,
        deterministic=True,
    )
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
