"""Fetches upstream's pure-Python release, which this package lays its own files over."""

import hashlib
import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from .errors import BuildError

REQUIREMENT = "mmcv-lite==2.1.0"
FILE_NAME = "mmcv_lite-2.1.0-py2.py3-none-any.whl"
SHA256 = "1d9913c35f793de4a3a022b93cecb712e1e7262eb4704eb8cd15e623dd375000"


def upstream_wheel(cache: Path, env: Mapping[str, str] = os.environ) -> Path:
    """Returns upstream's wheel: the file `MMCV_LITE_WHEEL`, or the one in `cache`, which pip fills.

    Raises:
        BuildError: pip cannot download it, or the file has another SHA-256 than the one expected.
    """
    given = env.get("MMCV_LITE_WHEEL")
    if given:
        if not Path(given).is_file():
            raise BuildError(
                f"MMCV_LITE_WHEEL must be the file {FILE_NAME}, got {given}, which does not exist"
            )
        return _checked(Path(given))
    wheel = cache / FILE_NAME
    if not wheel.is_file() or _sha256(wheel) != SHA256:
        _download(wheel, env)
    return wheel


def _download(wheel: Path, env: Mapping[str, str]) -> None:
    wheel.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=wheel.parent) as folder:
        command = [
            sys.executable,
            "-m",
            "pip",
            "download",
            "--quiet",
            "--no-deps",
            "--only-binary=:all:",
        ]
        answer = subprocess.run(
            [*command, "--dest", folder, REQUIREMENT],
            env=dict(env),
            capture_output=True,
            text=True,
            check=False,
        )
        file = Path(folder) / FILE_NAME
        if answer.returncode or not file.is_file():
            words = (answer.stderr or answer.stdout).strip().splitlines()
            raise BuildError(
                f"pip could not download {REQUIREMENT}: {words[-1] if words else 'no message'}. "
                f"Without a network, put the path of {FILE_NAME} in MMCV_LITE_WHEEL"
            )
        os.replace(_checked(file), wheel)


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _checked(path: Path) -> Path:
    found = _sha256(path)
    if found != SHA256:
        raise BuildError(
            f"{path} is not upstream's {FILE_NAME}: SHA-256 {found}, expected {SHA256}"
        )
    return path


def upstream_files(wheel: Path) -> Iterator[tuple[str, bytes]]:
    """Yields (path in site-packages, content) of upstream's files but `mmcv.ops`, which is ours."""
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            if (
                name.startswith("mmcv/")
                and not name.startswith("mmcv/ops/")
                and not name.endswith("/")
            ):
                yield name, archive.read(name)


def upstream_license(wheel: Path) -> bytes:
    """Upstream's licence text, which has to travel with its files."""
    with zipfile.ZipFile(wheel) as archive:
        return archive.read("mmcv_lite-2.1.0.dist-info/LICENSE")
