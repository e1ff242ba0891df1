"""Configs, options, time budget and what is said before training."""

import json
import math
from collections import namedtuple
from pathlib import Path

import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from autodrive.engine import memory
from autodrive.engine.config import load_config, set_data_root
from autodrive.engine.train import build_runner, select_device, train
from tests.autodrive.toy_training import toy_config

NANO = Path(__file__).parents[2] / "examples" / "bevformer" / "configs" / "nano.py"


def losses(folder: Path) -> list[dict]:
    return [json.loads(line) for line in (folder / "losses.jsonl").read_text().splitlines()]


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        (
            "optim_wrapper.optimiser.lr",
            "option optim_wrapper.optimiser.lr: optim_wrapper has no 'optimiser'; "
            "did you mean optim_wrapper.optimizer?",
        ),
        ("modle.use_grid_mask", "the config has no 'modle'; did you mean model?"),
        ("param_scheduler.7.end", "param_scheduler has no '7'"),
        ("speed.bf8", "speed has no 'bf8'"),
        ("model.type.x", "model.type has no 'x'"),
    ],
)
def test_unknown_option_names_the_nearest_key(key, expected):
    with pytest.raises(ValueError) as error:
        load_config(NANO, {key: 1})
    assert expected in str(error.value)


def test_known_options_are_set():
    options = {
        "optim_wrapper.optimizer.lr": 5e-5,
        "param_scheduler.0.end": 7,
        "speed.channels_last": False,
        "checkpoint.interval": 3,
    }
    config = load_config(NANO, options)
    assert config.optim_wrapper.optimizer.lr == 5e-5
    assert config.param_scheduler[0]["end"] == 7
    assert config.speed.channels_last is False and config.checkpoint.interval == 3


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x = (", r"cannot be read: SyntaxError"),
        (
            "from mmengine.config import read_base\nwith read_base():\n    from .not_there import *",
            r"cannot be read: .*not_there",
        ),
        (
            "model = dict()\ntrain_data_loader = dict()",
            r"has no train_dataloader \(it has train_data",
        ),
    ],
)
def test_broken_config_is_named(tmp_path, text, expected):
    path = tmp_path / "broken.py"
    path.write_text(text)
    with pytest.raises(ValueError, match=rf"config {path} {expected}"):
        load_config(path)


def test_missing_data_is_named(tmp_path):
    config = load_config(NANO)
    with pytest.raises(FileNotFoundError, match=r"data root .*nowhere is not a folder"):
        set_data_root(config, tmp_path / "nowhere")
    with pytest.raises(FileNotFoundError, match=r"autodrive_infos_train\.pkl does not exist; make"):
        set_data_root(config, tmp_path)


def test_unknown_model_argument_names_the_class(tmp_path):
    config = toy_config(widht=3)
    with pytest.raises(TypeError, match=r"ToyModel.*unexpected keyword argument 'widht'"):
        train(config, tmp_path, device="cpu")


def test_sampler_that_cannot_resume_is_refused(tmp_path):
    config = toy_config()
    config.train_dataloader.sampler = dict(type="DefaultSampler")
    with pytest.raises(ValueError, match=r"must be an infinite QueueSampler, got DefaultSampler"):
        train(config, tmp_path, device="cpu")


def test_gpu_that_is_not_there_is_refused(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ValueError, match="device cuda was asked for"):
        select_device("cuda")


def test_time_budget_shapes_the_learning_rate_and_ends_training(tmp_path, capsys):
    config = toy_config()
    config.custom_hooks.append(dict(type="Slow", seconds=0.02))
    train(config, tmp_path, device="cpu", max_minutes=3 / 60)
    rows = losses(tmp_path)
    assert 3.0 <= rows[-1]["seconds"] < 6 and len(rows) > 5
    rates = [row["lr"] / 0.01 for row in rows]
    assert rates[0] == pytest.approx(0.01, rel=0.05)  # the first of 100 iterations of warm-up
    for row, previous, rate in zip(rows[1:], rows[:-1], rates[1:]):
        warm = min(1.0, row["iter"] / 100)
        cosine = 0.01 + 0.99 * (1 + math.cos(math.pi * previous["seconds"] / 3.0)) / 2
        assert rate == pytest.approx(warm * cosine, abs=0.05)
    assert rates[-1] < 0.05 < max(rates)
    assert "training for 00:03 min: 100" in capsys.readouterr().out
    assert (tmp_path / f"iter_{len(rows)}.pth").exists()


def test_time_of_an_interrupted_run_counts(tmp_path):
    first = toy_config()
    first.custom_hooks.append(dict(type="Slow", seconds=0.02))
    train(first, tmp_path, device="cpu", max_minutes=1 / 60)
    count = len(losses(tmp_path))
    second = toy_config()
    second.custom_hooks.append(dict(type="Slow", seconds=0.02))
    train(second, tmp_path, device="cpu", resume=True, max_minutes=2 / 60)
    rows = losses(tmp_path)
    assert [row["iter"] for row in rows] == list(range(1, len(rows) + 1))
    assert 1.9 < rows[-1]["seconds"] < 4 and count < len(rows)
    third = train(toy_config(), tmp_path, device="cpu", resume=True, max_minutes=2 / 60)
    assert third.iter == len(rows)  # the time is used up


def test_budget_must_be_positive(tmp_path):
    with pytest.raises(ValueError, match="minutes of training must be more than 0, got 0"):
        build_runner(toy_config(), tmp_path, max_minutes=0.0)


class Images(Dataset):
    def __len__(self) -> int:
        return 4

    def __getitem__(self, index):
        return {"inputs": {"img": torch.zeros(2, 2**20)}, "name": "x"}  # 8 MiB


@pytest.mark.filterwarnings("ignore:This DataLoader will create")
@pytest.mark.parametrize(
    ("mebibytes", "workers", "enough"), [(64, 4, False), (64, 0, True), (80, 4, True)]
)
def test_small_shared_memory_is_said_before_training(monkeypatch, mebibytes, workers, enough):
    """K37: 4 workers with 2 batches each and one in use are 9 batches of 8 MiB."""
    usage = namedtuple("usage", "total used free")(mebibytes * 2**20, 0, 0)
    monkeypatch.setattr(memory.shutil, "disk_usage", lambda path: usage)
    loader = DataLoader(Images(), batch_size=1, num_workers=workers)
    problem = memory.shared_memory_problem(loader)
    if enough:
        assert problem is None
    else:
        assert "64 MiB, 4 workers need about 72 MiB" in problem
        assert "--shm-size=8G or --ipc=host" in problem


@pytest.mark.parametrize("strict", [False, True])
def test_small_shared_memory_is_an_error_in_strict_mode(tmp_path, monkeypatch, capsys, strict):
    """K37."""
    monkeypatch.setattr(memory, "shared_memory_problem", lambda loader: "/dev/shm has 1 MiB")
    if strict:
        with pytest.raises(ValueError, match="/dev/shm has 1 MiB"):
            train(toy_config(2), tmp_path, device="cpu", strict=True)
    else:
        train(toy_config(2), tmp_path, device="cpu")
        assert "warning: /dev/shm has 1 MiB" in capsys.readouterr().err


def test_progress_and_metrics_are_written(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("autodrive.engine.progress.LINE_EVERY", 0.0)
    train(toy_config(20), tmp_path, device="cpu")
    output = capsys.readouterr()
    assert "training: 15/20 iterations, left 00:00, iteration 15, loss " in output.err
    assert "epoch 2: score" in output.out
    assert [json.loads(line)["epoch"] for line in (tmp_path / "metrics.jsonl").open()] == [1, 2]
    row = losses(tmp_path)[-1]
    assert {"iter", "lr", "seconds", "loss", "loss_toy", "grad_norm"} == row.keys()
