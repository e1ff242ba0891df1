"""The PEP 517 build backend of this package.

`environment` finds torch, `toolchain` the compilers, `native` compiles csrc/ with ninja, `upstream`
fetches the pure-Python release that our files are laid over, `wheel` writes the result. README.md
lists the environment variables.
"""

import functools
import hashlib
import json
import os
import re
import shutil
import sys
import sysconfig
from pathlib import Path

from .environment import find_torch
from .errors import BuildError
from .native import build_libraries, write_text
from .toolchain import Toolchain, choose_toolchain
from .upstream import upstream_files, upstream_license, upstream_wheel
from .wheel import metadata, write_sdist, write_wheel

SOURCE = Path(__file__).resolve().parents[1]
_SOURCE_FOLDERS = ("build_backend", "csrc", "mmcv")


def _one_message(hook):
    """Ends the build with one line instead of a traceback."""

    @functools.wraps(hook)
    def run(*args, **kwargs):
        try:
            return hook(*args, **kwargs)
        except BuildError as error:
            raise SystemExit(f"error: mmcv: {error}") from None

    return run


@_one_message
def get_requires_for_build_wheel(config_settings=None) -> list[str]:
    return ["pip", "ninja"] if _with_ops() else ["pip"]


@_one_message
def get_requires_for_build_sdist(config_settings=None) -> list[str]:
    return []


@_one_message
def prepare_metadata_for_build_wheel(metadata_directory, config_settings=None) -> str:
    folder = Path(metadata_directory) / f"{_dist()}.dist-info"
    folder.mkdir(parents=True)
    (folder / "METADATA").write_text(_metadata())
    return folder.name


@_one_message
def build_wheel(wheel_directory, config_settings=None, metadata_directory=None) -> str:
    ours = _our_files()
    wheel = upstream_wheel(_build_folder())
    files = dict(upstream_files(wheel))
    files.update((name, path.read_bytes()) for name, path in ours.items())
    return _write(wheel_directory, wheel, files)


@_one_message
def build_editable(wheel_directory, config_settings=None, metadata_directory=None) -> str:
    """A wheel with one .pth file, which names a folder where our files are links to the sources."""
    ours = _our_files()
    wheel = upstream_wheel(_build_folder())
    stage = _build_folder() / "editable"
    shutil.rmtree(stage, ignore_errors=True)
    for name, data in upstream_files(wheel):
        if name not in ours:
            (stage / name).parent.mkdir(parents=True, exist_ok=True)
            (stage / name).write_bytes(data)
    for name, path in ours.items():
        (stage / name).parent.mkdir(parents=True, exist_ok=True)
        (stage / name).symlink_to(path)
    return _write(wheel_directory, wheel, {"mmcv_editable.pth": f"{stage}\n".encode()})


@_one_message
def build_sdist(sdist_directory, config_settings=None) -> str:
    files = {name: SOURCE / name for name in ("pyproject.toml", "README.md", "LICENSE")}
    for folder in _SOURCE_FOLDERS:
        files.update((str(path.relative_to(SOURCE)), path) for path in _files(SOURCE / folder))
    data = {name: path.read_bytes() for name, path in files.items()}
    return write_sdist(Path(sdist_directory), _dist(), _metadata(), data)


get_requires_for_build_editable = get_requires_for_build_wheel
prepare_metadata_for_build_editable = prepare_metadata_for_build_wheel


def _with_ops() -> bool:
    value = os.environ.get("MMCV_WITH_OPS", "1")
    if value not in ("0", "1"):
        raise BuildError(f"MMCV_WITH_OPS must be 0 or 1, got {value!r}")
    return value == "1"


def _our_files() -> dict[str, Path]:
    """Path in site-packages -> file, of all that we add to upstream; builds the libraries."""
    files = {str(path.relative_to(SOURCE)): path for path in _files(SOURCE / "mmcv")}
    folder = _build_folder()
    info: dict = {"ops": False}
    if _with_ops():
        torch = find_torch()
        tools = choose_toolchain(torch)
        if tools.note:
            print(f"mmcv: no GPU library: {tools.note}")
        folder = folder / f"torch-{torch.version}"
        libraries = build_libraries(SOURCE, folder, torch, tools)
        files.update((f"mmcv/lib/{path.name}", path) for path in libraries)
        info = _build_info(torch.version, tools)
    info_file = folder / "build_info.json"
    write_text(info_file, json.dumps(info, indent=1) + "\n")
    return {**files, "mmcv/lib/build_info.json": info_file}


def _build_info(torch_version: str, tools: Toolchain) -> dict:
    """What `mmcv.ops.library` tells about this build."""
    gpu = tools.gpu and {
        "backend": tools.gpu.backend,
        "version": tools.gpu.version,
        "archs": tools.gpu.archs,
    }
    return {
        "ops": True,
        "torch": torch_version,
        "compiler": tools.cxx_version,
        "gpu": gpu,
        "note": tools.note,
    }


def _write(folder: str, upstream: Path, files: dict[str, bytes]) -> str:
    tag = "py3-none-any"
    if _with_ops():
        tag = "py3-none-" + re.sub(r"[-.]", "_", sysconfig.get_platform())
    licenses = {
        "LICENSE": (SOURCE / "LICENSE").read_bytes(),
        "mmcv-lite/LICENSE": upstream_license(upstream),
    }
    return write_wheel(Path(folder), _dist(), tag, _metadata(), files, licenses)


def _files(folder: Path) -> list[Path]:
    paths = (path for path in folder.rglob("*") if path.is_file() and path.suffix != ".pyc")
    return sorted(path for path in paths if "__pycache__" not in path.parts)


@functools.cache
def _build_folder() -> Path:
    """Where objects live between builds.

    MMCV_BUILD_DIR, else build/ beside csrc/, or the user's cache if the sources are read-only.
    """
    if os.environ.get("MMCV_BUILD_DIR"):
        return Path(os.environ["MMCV_BUILD_DIR"]).resolve()
    folder = SOURCE / "build"
    try:
        folder.mkdir(exist_ok=True)
        writable = os.access(folder, os.W_OK)
    except OSError:
        writable = False
    if writable:
        return folder
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "mmcv-build" / hashlib.sha256(str(SOURCE).encode()).hexdigest()[:16]


def _project() -> dict:
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    return tomllib.loads((SOURCE / "pyproject.toml").read_text())["project"]


def _version() -> str:
    text = (SOURCE / "mmcv" / "version.py").read_text()
    return re.search(r'^__version__ = "(.+)"$', text, re.MULTILINE)[1]


def _dist() -> str:
    return f"mmcv-{_version()}"


def _metadata() -> str:
    project = _project()
    project["license-files"] = [*project["license-files"], "mmcv-lite/LICENSE"]
    return metadata(project, _version(), (SOURCE / "README.md").read_text())
