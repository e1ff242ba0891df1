"""Checkpoints: found again after a crash, read without running code, checked against the model."""

import pickle
import re
import sys
import zipfile
from pathlib import Path

import numpy as np
import torch
from mmengine.config import ConfigDict
from mmengine.dist import is_main_process
from mmengine.logging import HistoryBuffer
from torch import nn

try:
    from numpy._core.multiarray import _reconstruct, scalar
except ImportError:  # numpy 1
    from numpy.core.multiarray import _reconstruct, scalar


def _history_method(owner: type, name: str):
    """What a pickled HistoryBuffer needs of getattr, and no more."""
    if owner is not HistoryBuffer:
        raise pickle.UnpicklingError(f"Unsupported global: GLOBAL builtins.getattr of {owner}")
    return getattr(owner, name)


def allow_known_classes() -> None:
    """Lets `torch.load` read what mmengine's Runner writes; everything else stays refused."""
    dtypes = {type(np.dtype(kind)) for kind in "?bBhHiIlLqQefdSU"}
    known = [HistoryBuffer, ConfigDict, np.ndarray, np.dtype, _reconstruct, scalar, *dtypes]
    # As they were called when most public checkpoints were written.
    known += [(f, f"numpy.core.multiarray.{f.__name__}") for f in (_reconstruct, scalar)]
    torch.serialization.add_safe_globals([*known, (_history_method, "builtins.getattr")])


def read_checkpoint(path: str | Path, map_location: str = "cpu") -> dict:
    """The content of a checkpoint file, with weights and data only.

    Raises:
        FileNotFoundError, ValueError: naming the file, and the class that was refused or what is wrong.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"checkpoint {path} does not exist")
    allow_known_classes()
    try:
        content = torch.load(path, map_location=map_location, weights_only=True)
    except pickle.UnpicklingError as error:
        refused = re.search(r"GLOBAL ([\w.]+)", str(error))
        reason = (
            f"it holds a {refused.group(1)}, and only weights and plain data are read"
            if refused
            else str(error).splitlines()[0]
        )
        raise ValueError(f"checkpoint {path} was refused: {reason}") from None
    except Exception as error:  # what torch.load raises depends on where the damage is
        reason = (str(error) or "it ends too early").splitlines()[0]
        raise ValueError(
            f"checkpoint {path} is damaged or no checkpoint: {type(error).__name__}: {reason}"
        ) from None
    if not isinstance(content, dict):
        raise ValueError(f"checkpoint {path} must hold a dict, got {type(content).__name__}")
    return content


def load_weights(model: nn.Module, path: str | Path) -> None:
    """Loads the weights of a checkpoint, all of them and nothing else.

    Raises:
        ValueError: naming the first keys that are missing, unknown or of another shape.
    """
    content = read_checkpoint(path)
    state = content.get("state_dict", content)
    state = {key.removeprefix("module."): value for key, value in state.items()}
    check_shapes(model, state, str(path))
    model.load_state_dict(state, strict=True)


def check_shapes(model: nn.Module, state: dict, name: str) -> None:
    """ValueError unless `state` has exactly the keys and shapes of the model."""
    wanted = model.state_dict()
    problems = [
        f"{key} is {tuple(state[key].shape)}, the model has {tuple(wanted[key].shape)}"
        for key in wanted
        if key in state and state[key].shape != wanted[key].shape
    ]
    problems += [f"{key} is missing" for key in wanted if key not in state]
    problems += [f"{key} is not in the model" for key in state if key not in wanted]
    if problems:
        more = f" and {len(problems) - 3} more" if len(problems) > 3 else ""
        raise ValueError(f"{name} does not fit the model: {'; '.join(problems[:3])}{more}")


def numbered_checkpoints(folder: str | Path) -> list[Path]:
    """The files `iter_<n>.pth` of a folder, newest first."""
    found = {
        path: re.fullmatch(r"iter_(\d+)\.pth", path.name) for path in Path(folder).glob("*.pth")
    }
    numbers = {path: int(match.group(1)) for path, match in found.items() if match}
    return sorted(numbers, key=numbers.get, reverse=True)


def latest_checkpoint(folder: str | Path) -> Path | None:
    """The newest whole checkpoint `iter_<n>.pth` of a folder; damaged ones are passed over, with a line."""
    for path in numbered_checkpoints(folder):
        # A zip file ends with its index, so that a truncated one is none.
        if zipfile.is_zipfile(path):
            return path
        if is_main_process():
            print(f"{path} is damaged and passed over", file=sys.stderr)
    return None
