"""Reading a config and pointing it at a user's data, folders and device."""

import difflib
import sys
from pathlib import Path
from typing import Any

from mmengine.config import Config

from autodrive.data.info import is_key_frame_folder, load_infos

DATALOADERS = ("train_dataloader", "val_dataloader", "test_dataloader")
EVALUATORS = ("val_evaluator", "test_evaluator")
NEEDED = ("model", "train_dataloader", "train_cfg", "optim_wrapper")


def load_config(path: str | Path, options: dict[str, Any] | None = None) -> Config:
    """A config file, with options like {"optim_wrapper.optimizer.lr": 1e-4} in place.

    What the engine itself can be told is there with its defaults: `speed` (see `precision`) and `checkpoint` (see
    `hooks.SaveCheckpointHook`).

    Raises:
        FileNotFoundError, ValueError: naming the file, or the option that the config does not have.
    """
    from .precision import speed_options

    path = Path(path).resolve()
    if not path.is_file():
        raise FileNotFoundError(f"config {path} does not exist")
    # Configs import their model from the folder that holds `examples`.
    for parent in path.parents:
        if parent.name == "examples" and str(parent.parent) not in sys.path:
            sys.path.insert(0, str(parent.parent))
    try:
        config = Config.fromfile(str(path))
    except Exception as error:  # a config is code: anything can go wrong in it
        reason = f"{type(error).__name__}: {error}"
        raise ValueError(f"config {path} cannot be read: {reason}") from error
    missing = [key for key in NEEDED if key not in config]
    if missing:
        near = difflib.get_close_matches(missing[0], list(config.keys()), n=1)
        hint = f" (it has {near[0]})" if near else ""
        raise ValueError(f"config {path} has no {missing[0]}{hint}")
    config.speed = speed_options(config)
    config.checkpoint = {"interval": 200, "keep": 2, "best": "NDS", **config.get("checkpoint", {})}
    for key in options or {}:
        _check_key(config, key)
    config.merge_from_dict(options or {})
    config.speed = speed_options(config)
    return config


def _check_key(config: Any, key: str) -> None:
    """ValueError if a dotted key is not in the config; lists are indexed by number."""
    node, walked = config, []
    for part in key.split("."):
        if isinstance(node, (list, tuple)):
            known = [str(i) for i in range(len(node))]
        elif hasattr(node, "keys"):
            known = [str(k) for k in node.keys()]
        else:
            known = []
        if part not in known:
            place = ".".join(walked) or "the config"
            near = difflib.get_close_matches(part, known, n=1)
            hint = f"; did you mean {'.'.join([*walked, near[0]])}?" if near else ""
            raise ValueError(f"option {key}: {place} has no {part!r}{hint}")
        node = node[int(part)] if isinstance(node, (list, tuple)) else node[part]
        walked.append(part)


def set_data_root(config: Config, data_root: str | Path) -> None:
    """Points every dataset and evaluator at a folder, and checks that it holds data."""
    data_root = Path(data_root).resolve()
    load_infos(data_root, "val" if is_key_frame_folder(data_root) else "train")
    for name in DATALOADERS:
        if config.get(name):
            config[name].dataset.data_root = str(data_root)
    for name in EVALUATORS:
        if config.get(name):
            config[name].data_root = str(data_root)


def set_split(config: Config, split: str) -> None:
    """Which split is evaluated."""
    config.val_dataloader.dataset.split = split
    config.val_evaluator.split = split
