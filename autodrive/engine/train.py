"""`autodrive train`: a config, data, and mmengine's Runner.

Under torchrun all processes train together (DDP), on GPUs with NCCL or RCCL, else with gloo:
    torchrun --nproc-per-node 8 -m autodrive train CONFIG --data DIR
"""

import argparse
import datetime
import os
import uuid
from pathlib import Path
from typing import Any

import mmengine.model
import mmengine.runner
import torch
from mmengine.config import Config, DictAction
from mmengine.dist import is_main_process, master_only
from mmengine.hooks import ParamSchedulerHook
from mmengine.optim import OptimWrapper
from torch import nn

from .checkpoint import check_shapes, latest_checkpoint, numbered_checkpoints, read_checkpoint
from .config import load_config, set_data_root
from .hooks import (
    IterationSeedHook,
    ProgressHook,
    SaveCheckpointHook,
    StopOnSignalHook,
    TimeBudgetHook,
)
from .loop import TrainLoop
from .memory import SharedMemoryHook
from .optim_wrapper import TrainingOptimWrapper
from .parameter_groups import GroupedOptimWrapperConstructor
from .precision import cpu_has_bf16, set_environment, speed_options, speed_up

# A collective may wait for the first process to compute the metrics of a whole dataset.
PATIENCE = datetime.timedelta(hours=2)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("config", help="for example examples/bevformer/configs/tiny.py")
    parser.add_argument(
        "--data", required=True, help="prepared nuScenes folder, or a key-frame folder"
    )
    parser.add_argument("--work-dir", help="for checkpoints and logs (default: runs/<config>)")
    parser.add_argument("--resume", action="store_true", help="go on from the latest checkpoint")
    parser.add_argument("--load-from", help="start from the weights of this checkpoint")
    parser.add_argument("--max-minutes", type=float, help="train this long, schedule included")
    parser.add_argument("--amp", action="store_true", help="bf16 autocast (config: speed.bf16)")
    parser.add_argument("--deterministic", action="store_true", help="same bits in every run")
    parser.add_argument("--strict", action="store_true", help="too little /dev/shm is an error")
    add_common_arguments(parser)


def add_common_arguments(parser: argparse.ArgumentParser) -> None:
    """What every command that builds a model from a config takes."""
    parser.add_argument("--device", default="auto", choices=("auto", "cpu", "cuda"))
    parser.add_argument("--seed", type=int, default=0, help="of all that is random (default: 0)")
    parser.add_argument(
        "--cfg-options",
        nargs="+",
        action=DictAction,
        default={},
        metavar="KEY=VALUE",
        help="change the config, for example optim_wrapper.optimizer.lr=1e-4",
    )


def run(args: argparse.Namespace) -> None:
    config = load_config(args.config, args.cfg_options)
    set_data_root(config, args.data)
    if args.amp:
        config.speed.bf16 = True
    train(
        config,
        args.work_dir or Path("runs") / Path(args.config).stem,
        device=args.device,
        seed=args.seed,
        resume=args.resume,
        load_from=args.load_from,
        max_minutes=args.max_minutes,
        deterministic=args.deterministic,
        strict=args.strict,
    )
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


class TrainingRunner(mmengine.runner.Runner):
    """mmengine's Runner that never leaves half a checkpoint, checks shapes on loading, and runs DDP on CPUs too."""

    @master_only
    def save_checkpoint(self, out_dir: str, filename: str, *args: Any, **kwargs: Any) -> None:
        temporary = f".{filename}.tmp"
        super().save_checkpoint(out_dir, temporary, *args, **kwargs)
        os.replace(os.path.join(out_dir, temporary), os.path.join(out_dir, filename))

    def load_checkpoint(self, filename: str, *args: Any, **kwargs: Any) -> dict:
        """The whole checkpoint, its weights in the model; errors as in `engine.checkpoint`."""
        content = read_checkpoint(filename)
        seed = content.get("meta", {}).get("seed", self.seed)
        if self._resume and seed != self.seed:
            raise ValueError(f"{filename} was trained with seed {seed}, this run has {self.seed}")
        self.call_hook("after_load_checkpoint", checkpoint=content)
        model = self.model.module if mmengine.model.is_model_wrapper(self.model) else self.model
        state = content.get("state_dict", content)
        check_shapes(model, state, filename)
        model.load_state_dict(state)
        self._has_loaded = True
        return content

    def wrap_model(self, model_wrapper_cfg: dict | None, model: nn.Module) -> nn.Module:
        model = model.to("cuda" if torch.cuda.is_available() else "cpu")
        speed_up(model, self.cfg.speed)
        if not self.distributed:
            return model
        on_gpu = next(model.parameters()).is_cuda
        return mmengine.model.MMDistributedDataParallel(
            module=model,
            device_ids=[torch.cuda.current_device()] if on_gpu else None,
            broadcast_buffers=False,
        )


def train(
    config: Config,
    work_dir: str | Path,
    device: str = "auto",
    seed: int = 0,
    resume: bool = False,
    load_from: str | None = None,
    max_minutes: float | None = None,
    deterministic: bool = False,
    strict: bool = False,
) -> TrainingRunner:
    """Trains a model and leaves its checkpoints, `losses.jsonl` and `metrics.jsonl` in `work_dir`.

    Args:
        device: "auto", "cpu" or "cuda".
        resume: go on from the latest whole checkpoint of `work_dir`; start anew if there is none.
        load_from: checkpoint to take weights from.
        max_minutes: train this long, with warm-up and cosine over that time, in place of the config's length.
        deterministic: only operations that give the same bits in every run.
        strict: doubts about the environment are errors.

    Raises:
        KeyboardInterrupt: SIGTERM or Ctrl-C ended training, after a checkpoint.
        ValueError: `work_dir` holds checkpoints and `resume` is not set, or what `engine.config` and
            `engine.checkpoint` say.
    """
    select_device(device)
    if not torch.cuda.is_available() and "OMP_NUM_THREADS" not in os.environ:
        # Every parallel loop waits for its slowest thread: leave cores to the loader and the rest.
        torch.set_num_threads(max(1, (os.cpu_count() or 1) // 2))
    runner = build_runner(
        config, work_dir, seed, resume, load_from, max_minutes, deterministic, strict
    )
    signals = next(hook for hook in runner.hooks if isinstance(hook, StopOnSignalHook))
    try:
        runner.train()
    finally:
        signals.release()
    if signals.stopped:
        raise KeyboardInterrupt(
            f"stopped at {latest_checkpoint(work_dir)}, from where training can go on"
        )
    if is_main_process():
        print(f"checkpoint: {latest_checkpoint(work_dir)}")
    return runner


def select_device(device: str) -> None:
    """Makes "cpu" hide the GPUs, and "cuda" fail without one; joins the group of a torchrun job.

    Raises:
        ValueError: a GPU was asked for and none is there.
    """
    if device == "cpu":
        os.environ["CUDA_VISIBLE_DEVICES"] = os.environ["HIP_VISIBLE_DEVICES"] = ""
    if device == "cuda" and not torch.cuda.is_available():
        raise ValueError("device cuda was asked for, and torch sees no GPU")
    if int(os.environ.get("WORLD_SIZE", 1)) > 1 and not torch.distributed.is_initialized():
        on_gpu = torch.cuda.is_available()
        if on_gpu:
            torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        torch.distributed.init_process_group("nccl" if on_gpu else "gloo", timeout=PATIENCE)


def build_runner(
    config: Config,
    work_dir: str | Path,
    seed: int = 0,
    resume: bool = False,
    load_from: str | None = None,
    max_minutes: float | None = None,
    deterministic: bool = False,
    strict: bool = False,
) -> TrainingRunner:
    """A runner for a config whose data root is set; arguments as in `train`."""
    work_dir = Path(work_dir)
    work_dir.mkdir(parents=True, exist_ok=True)
    found = latest_checkpoint(work_dir) if resume else None
    if not resume and numbered_checkpoints(work_dir):
        raise ValueError(
            f"{work_dir} holds {numbered_checkpoints(work_dir)[0].name} of an earlier training: go on with it "
            "(--resume) or choose another folder (--work-dir)"
        )
    if found and is_main_process():
        print(f"resuming from {found}")

    config.speed = speed_options(config)
    set_environment(config.speed)
    if config.speed.bf16 and not torch.cuda.is_available() and not cpu_has_bf16():
        print("this CPU has no bf16 instructions: training in fp32")
        config.speed.bf16 = False
    if config.speed.bf16 or config.optim_wrapper.type in (OptimWrapper, "OptimWrapper"):
        config.optim_wrapper.update(type=TrainingOptimWrapper.__name__, bf16=config.speed.bf16)
    config.optim_wrapper.setdefault("constructor", GroupedOptimWrapperConstructor.__name__)

    hooks = [
        dict(type=SharedMemoryHook, strict=strict),
        dict(type=IterationSeedHook),
        dict(type=StopOnSignalHook),
        dict(type=ProgressHook),
    ]
    if max_minutes is not None:
        config.train_cfg = dict(type=TrainLoop.__name__)
        hooks.append(dict(type=TimeBudgetHook, minutes=max_minutes))
    val_loop = bool(config.get("val_dataloader")) and max_minutes is None
    return TrainingRunner(
        model=config.model,
        work_dir=str(work_dir),
        train_dataloader=config.train_dataloader,
        val_dataloader=config.val_dataloader if val_loop else None,
        val_cfg=config.val_cfg if val_loop else None,
        val_evaluator=config.val_evaluator if val_loop else None,
        train_cfg=config.train_cfg,
        optim_wrapper=config.optim_wrapper,
        param_scheduler=config.get("param_scheduler") if max_minutes is None else None,
        default_hooks=dict(
            runtime_info=None,
            timer=None,
            logger=None,
            sampler_seed=None,
            param_scheduler=dict(type=ParamSchedulerHook),
            checkpoint=dict(type=SaveCheckpointHook, **(config.get("checkpoint") or {})),
        ),
        custom_hooks=[*hooks, *config.get("custom_hooks", [])],
        load_from=str(found) if found else load_from,
        resume=bool(found),
        launcher="pytorch" if torch.distributed.is_initialized() else "none",
        env_cfg=dict(dist_cfg=dict(backend=None), cudnn_benchmark=not deterministic),
        log_level="ERROR",
        randomness=dict(seed=seed, deterministic=deterministic),
        # Runners of one process share messages by name.
        experiment_name=f"{work_dir.name}-{uuid.uuid4().hex[:8]}",
        default_scope="mmdet3d",
        cfg=config,
    )
