"""Finds the torch that the ops are built for, without importing it."""

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.machinery import PathFinder
from pathlib import Path

from .errors import BuildError

OLDEST_TORCH = (2, 10)  # the first release whose stable ABI has everything that the ops use

_ASK_WHERE_TORCH_IS = """
from importlib.machinery import PathFinder
spec = PathFinder.find_spec("torch")
print(spec.origin if spec and spec.origin else "")
"""


@dataclass(frozen=True)
class Torch:
    """An installed torch, as its version.py describes it."""

    folder: Path  # .../site-packages/torch
    version: str
    cuda: str | None  # CUDA release of a CUDA build
    hip: str | None  # HIP release of a ROCm build

    @property
    def include(self) -> Path:
        return self.folder / "include"


def find_torch(env: Mapping[str, str] = os.environ) -> Torch:
    """Locates torch and checks that the ops can be built with it.

    In this order: the folder `MMCV_TORCH_DIR`; this process's path (build isolation off); what the
    interpreter that runs this build sees without build isolation; the active virtual or conda
    environment, for installers that run the build in an environment of their own.

    Raises:
        BuildError: no torch, a torch older than 2.10, or one without C++ headers.
    """
    override = env.get("MMCV_TORCH_DIR")
    if override:
        folder = Path(override)
        if not (folder / "version.py").is_file():
            raise BuildError(
                f"MMCV_TORCH_DIR must be the folder of torch (with version.py), got {override}"
            )
        return _read_torch(folder)
    folder = _folder(PathFinder.find_spec("torch"))
    for python in _interpreters(env):
        folder = folder or _ask(python, env)
    if folder is None:
        raise BuildError(
            f"no torch found for {sys.executable}. Install torch>={_dotted(OLDEST_TORCH)} first "
            "(the build for your GPU), or set MMCV_TORCH_DIR to its folder, or MMCV_WITH_OPS=0 for "
            "mmcv without ops"
        )
    return _read_torch(folder)


def _folder(spec) -> Path | None:
    return Path(spec.origin).parent if spec and spec.origin else None


def _interpreters(env: Mapping[str, str]) -> list[str]:
    prefixes = [env[name] for name in ("VIRTUAL_ENV", "CONDA_PREFIX") if env.get(name)]
    pythons = [Path(prefix) / "bin" / "python" for prefix in prefixes]
    return [sys.executable, *(str(python) for python in pythons if python.exists())]


def _ask(python: str, env: Mapping[str, str]) -> Path | None:
    """Where `python` finds torch once the variables through which pip isolates a build are gone."""
    outside = {
        k: v for k, v in env.items() if k not in ("PYTHONPATH", "PYTHONNOUSERSITE", "PYTHONHOME")
    }
    answer = subprocess.run(
        [python, "-c", _ASK_WHERE_TORCH_IS],
        cwd="/",
        env=outside,
        capture_output=True,
        text=True,
        check=False,
    )
    origin = answer.stdout.strip()
    return Path(origin).parent if origin else None


def _read_torch(folder: Path) -> Torch:
    # The same path however it was found: another spelling in a command compiles everything again.
    folder = folder.resolve()
    text = (folder / "version.py").read_text()

    def value(name: str) -> str | None:
        found = re.search(rf"^{name}\b[^=\n]*= *['\"]([^'\"]+)['\"]", text, re.MULTILINE)
        return found[1] if found else None

    torch = Torch(folder, value("__version__") or "", value("cuda"), value("hip"))
    numbers = re.match(r"(\d+)\.(\d+)", torch.version)
    if not numbers:
        raise BuildError(f"{folder / 'version.py'} has no version in it")
    if (int(numbers[1]), int(numbers[2])) < OLDEST_TORCH:
        raise BuildError(
            f"torch {torch.version} in {folder} is too old: "
            f"the ops need torch>={_dotted(OLDEST_TORCH)}"
        )
    if not (torch.include / "torch" / "csrc" / "stable" / "library.h").is_file():
        raise BuildError(
            f"torch {torch.version} has no C++ headers in {torch.include}: reinstall torch with pip"
        )
    return torch


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))
