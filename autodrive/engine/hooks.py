"""What happens around an iteration of training: seeds, stopping, learning rate over a time budget, progress, saving."""

import json
import os
import random
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from mmengine.dist import broadcast, get_rank, is_main_process
from mmengine.hooks import Hook
from mmengine.registry import HOOKS
from tqdm import tqdm

from autodrive.data.files import write_bytes

from .checkpoint import numbered_checkpoints, read_checkpoint
from .progress import Progress

ROWS_AT_ONCE = 10


@HOOKS.register_module()
class IterationSeedHook(Hook):
    """Seeds all random generators from (seed, iteration, rank) before each iteration.

    So dropout and GridMask do not depend on what ran before, and a resumed run draws what the interrupted one would
    have drawn, without generator states in checkpoints.
    """

    priority = "VERY_HIGH"

    def before_train_iter(self, runner, batch_idx: int, data_batch: Any = None) -> None:
        key = np.random.SeedSequence([runner.seed, runner.iter, get_rank()])
        seed = int(key.generate_state(1)[0])
        random.seed(seed)
        np.random.seed(seed)  # noqa: NPY002
        torch.manual_seed(seed)


@HOOKS.register_module()
class StopOnSignalHook(Hook):
    """SIGTERM and Ctrl-C end training after the current iteration, in all processes at the same one.

    A second signal ends the process at once. `stopped` tells afterwards that a signal was the reason.
    """

    priority = "HIGH"

    def __init__(self) -> None:
        self.stopped = False
        self._received = False
        self._process = 0
        self._handlers: dict[int, Any] = {}

    def before_train(self, runner) -> None:
        self._process = os.getpid()
        for number in (signal.SIGTERM, signal.SIGINT):
            try:
                self._handlers[number] = signal.signal(number, self._receive)
            except ValueError:  # not in the main thread: whoever is there handles signals
                return

    def _receive(self, number: int, frame: Any) -> None:
        if os.getpid() != self._process:
            return  # a data loader worker: the main process decides
        self._received = True
        self.release()
        print(f"\n{signal.Signals(number).name}: stopping after this iteration", flush=True)

    def after_train_iter(self, runner, batch_idx: int, data_batch=None, outputs=None) -> None:
        self.stopped = any_process(self._received, runner)
        if self.stopped:
            runner.train_loop.stop_training = True

    def after_train(self, runner) -> None:
        self.release()

    def release(self) -> None:
        """Gives the signals back to who had them before training."""
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        self._handlers = {}


@HOOKS.register_module()
class TimeBudgetHook(Hook):
    """Trains for a given time: linear warm-up over iterations, cosine over what has passed of the time, then stop.

    It takes the place of the config's schedulers. The time that an interrupted run had used counts. The clock of the
    first process counts for all of them.

    Args:
        minutes: of training, evaluation not counted.
        warmup_iters: iterations over which the learning rate rises from 0.
        final_ratio: what remains of the learning rate at the end.
    """

    priority = "HIGH"

    def __init__(self, minutes: float, warmup_iters: int = 100, final_ratio: float = 0.01) -> None:
        if minutes <= 0:
            raise ValueError(f"minutes of training must be more than 0, got {minutes:g}")
        self.seconds = 60 * minutes
        self.warmup_iters = warmup_iters
        self.final_ratio = final_ratio
        self.elapsed = 0.0
        self._start = 0.0

    def before_train(self, runner) -> None:
        self._start = time.monotonic() - self.elapsed
        self._read_clock(runner)
        if is_main_process():
            left = tqdm.format_interval(round(max(0.0, self.seconds - self.elapsed)))
            print(
                f"training for {left} min: {self.warmup_iters} iterations of warm-up, then a cosine over the time, "
                f"down to {self.final_ratio:g} of the learning rate"
            )
        if self.elapsed >= self.seconds:
            runner.train_loop.stop_training = True

    def _read_clock(self, runner) -> None:
        self.elapsed = of_first_process(time.monotonic() - self._start, runner)

    def before_train_iter(self, runner, batch_idx: int, data_batch: Any = None) -> None:
        done = min(1.0, self.elapsed / self.seconds)
        cosine = self.final_ratio + (1 - self.final_ratio) * (1 + np.cos(np.pi * done)) / 2
        factor = float(cosine) * min(1.0, (runner.iter + 1) / self.warmup_iters)
        for group in runner.optim_wrapper.optimizer.param_groups:
            group["lr"] = group.setdefault("initial_lr", group["lr"]) * factor

    def after_train_iter(self, runner, batch_idx: int, data_batch=None, outputs=None) -> None:
        self._read_clock(runner)
        if self.elapsed >= self.seconds:
            runner.train_loop.stop_training = True

    def before_save_checkpoint(self, runner, checkpoint: dict) -> None:
        checkpoint["meta"]["training_seconds"] = self.elapsed

    def after_load_checkpoint(self, runner, checkpoint: dict) -> None:
        self.elapsed = float(checkpoint.get("meta", {}).get("training_seconds", 0.0))


def of_first_process(value: float, runner) -> float:
    """The value that the first process has."""
    shared = torch.tensor(value, dtype=torch.float64, device=_device(runner))
    broadcast(shared, src=0)
    return shared.item()


def any_process(flag: bool, runner) -> bool:
    """Whether the flag is set in one process at least."""
    shared = torch.tensor(float(flag), device=_device(runner))
    if torch.distributed.is_initialized():
        torch.distributed.all_reduce(shared, torch.distributed.ReduceOp.MAX)
    return bool(shared.item())


def _device(runner) -> torch.device:
    """Where the process group works; a flag on a GPU would only cost time without one."""
    if torch.distributed.is_initialized():
        return next(runner.model.parameters()).device
    return torch.device("cpu")


@HOOKS.register_module()
class ProgressHook(Hook):
    """Progress with the time left, every iteration's losses in `<work_dir>/losses.jsonl`, and the metrics of each
    validation in `<work_dir>/metrics.jsonl`.

    A row of losses: iter (from 1), lr, seconds (of training, an interrupted run's included), grad_norm where gradients
    are clipped, and each loss. Rows are written ten at a time: reading a value waits for the GPU.
    """

    priority = (
        "BELOW_NORMAL"  # before the schedulers' step: the learning rate is that of this iteration
    )

    def __init__(self) -> None:
        self.budget: TimeBudgetHook | None = None
        self.progress: Progress | None = None
        self.path = Path()
        self.start = 0.0
        self.pending: list[tuple[dict, list[str], torch.Tensor]] = []
        self.note = ""

    def before_train(self, runner) -> None:
        self.budget = next((h for h in runner.hooks if isinstance(h, TimeBudgetHook)), None)
        if self.budget:
            seconds, done = self.budget.seconds, self.budget.elapsed
            self.progress = Progress("training", seconds, "s", done)
        else:
            self.progress = Progress("training", runner.max_iters, "iterations", runner.iter)
        self.start = time.monotonic()
        self.path = Path(runner.work_dir) / "losses.jsonl"
        if is_main_process():
            rows = keep_rows(self.path, runner.iter)
            self.start -= rows[-1]["seconds"] if rows else 0
            # A checkpoint of the last iteration of an epoch is from before its validation, which comes again.
            keep_rows(self.path.with_name("metrics.jsonl"), runner.iter - 1)

    def after_train_iter(self, runner, batch_idx: int, data_batch=None, outputs=None) -> None:
        if not is_main_process():
            return
        row = {
            "iter": runner.iter + 1,
            "lr": runner.optim_wrapper.optimizer.param_groups[0]["lr"],
            "seconds": round(time.monotonic() - self.start, 3),
        }
        scalars = dict(outputs or {})
        norm = getattr(runner.optim_wrapper, "grad_norm", None)
        if norm is not None:
            scalars["grad_norm"] = norm
        names = list(scalars)
        values = [scalars[name].detach().float() for name in names]
        self.pending.append((row, names, torch.stack(values) if values else torch.empty(0)))
        if len(self.pending) == ROWS_AT_ONCE:
            self._write_rows()
        done = self.budget.elapsed if self.budget else row["iter"]
        self.progress.update(done, f"iteration {row['iter']}{self.note}")

    def _write_rows(self) -> None:
        with self.path.open("a") as file:
            for row, names, values in self.pending:
                row |= zip(names, (round(value, 5) for value in values.tolist()))
                file.write(json.dumps(row) + "\n")
        if self.pending:
            self.note = f", loss {row.get('loss', float('nan')):.3f}"
        self.pending = []

    def before_save_checkpoint(self, runner, checkpoint: dict) -> None:
        self._write_rows()

    def after_train(self, runner) -> None:
        if is_main_process():
            self._write_rows()
        self.progress.close(self.note.lstrip(", "))

    def before_val_epoch(self, runner) -> None:
        self.validation = Progress("validation", len(runner.val_dataloader), "batches")

    def after_val_iter(self, runner, batch_idx: int, data_batch=None, outputs=None) -> None:
        self.validation.update(batch_idx + 1)

    def after_val_epoch(self, runner, metrics: dict[str, float] | None = None) -> None:
        self.validation.close()
        if not is_main_process() or not metrics:
            return
        row = {"iter": runner.iter, "epoch": runner.epoch, **metrics}
        with (Path(runner.work_dir) / "metrics.jsonl").open("a") as file:
            file.write(json.dumps(row) + "\n")
        shown = [f"{key} {value:.3f}" for key, value in metrics.items() if "/" not in key]
        print(f"epoch {runner.epoch}: {', '.join(shown)}", flush=True)


def keep_rows(path: Path, iteration: int) -> list[dict]:
    """The rows of a .jsonl up to an iteration; the file loses what a killed run wrote after its last checkpoint."""
    rows = []
    for line in path.read_text().splitlines() if path.exists() else []:
        try:
            row = json.loads(line)
        except json.JSONDecodeError:  # half a line: the run was killed
            continue
        if row["iter"] <= iteration:
            rows.append(row)
    if path.exists():
        write_bytes(path, "".join(f"{json.dumps(row)}\n" for row in rows).encode())
    return rows


@HOOKS.register_module()
class SaveCheckpointHook(Hook):
    """Saves `iter_<n>.pth` every so many iterations and when training ends or is stopped, and `best.pth`.

    Files appear whole or not at all (`engine.train.TrainingRunner`), and old ones go after new ones are there: a kill
    at any moment loses at most the iterations since the last checkpoint. `last_checkpoint` holds the newest one's path.

    Args:
        interval: iterations between checkpoints.
        keep: how many of the newest stay.
        best: the metric, larger being better, whose best validation `best.pth` (weights only) comes from.
    """

    priority = "VERY_LOW"

    def __init__(self, interval: int = 200, keep: int = 2, best: str = "NDS") -> None:
        if interval < 1 or keep < 1:
            raise ValueError(
                f"checkpoint: interval and keep must be 1 or more, got {interval}, {keep}"
            )
        self.interval = interval
        self.keep = keep
        self.best = best
        self.best_value = -np.inf

    def before_train(self, runner) -> None:
        folder = Path(runner.work_dir)
        if is_main_process():
            for leftover in folder.glob(".*.pth.tmp"):
                leftover.unlink()
        if runner.iter and (folder / "best.pth").exists():
            best = read_checkpoint(folder / "best.pth")["meta"]["best"]
            if best["metric"] == self.best:
                self.best_value = best["value"]

    def after_train_iter(self, runner, batch_idx: int, data_batch=None, outputs=None) -> None:
        step, loop = runner.iter + 1, runner.train_loop
        if step % self.interval and step < loop.max_iters and not loop.stop_training:
            return
        runner.save_checkpoint(
            runner.work_dir,
            f"iter_{step}.pth",
            save_param_scheduler=runner.param_schedulers is not None,
            by_epoch=False,
        )
        if is_main_process():
            folder = Path(runner.work_dir)
            newest = folder / f"iter_{step}.pth"
            write_bytes(folder / "last_checkpoint", str(newest).encode())
            for path in numbered_checkpoints(folder)[self.keep :]:
                path.unlink()

    def after_val_epoch(self, runner, metrics: dict[str, float] | None = None) -> None:
        value = (metrics or {}).get(self.best)
        if value is None or value <= self.best_value:
            return
        self.best_value = value
        runner.save_checkpoint(
            runner.work_dir,
            "best.pth",
            save_optimizer=False,
            save_param_scheduler=False,
            meta={"epoch": runner.epoch, "iter": runner.iter}
            | {"best": {"metric": self.best, "value": float(value)}},
        )
