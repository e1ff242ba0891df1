"""Writes wheels (PEP 427) and source archives."""

import base64
import hashlib
import io
import os
import tarfile
import zipfile
from pathlib import Path

_1980 = (1980, 1, 1, 0, 0, 0)  # the same input gives the same file


def metadata(project: dict, version: str, readme: str) -> str:
    """The METADATA file for the [project] table of pyproject.toml."""
    lines = [
        "Metadata-Version: 2.4",
        f"Name: {project['name']}",
        f"Version: {version}",
        f"Summary: {project['description']}",
        f"Requires-Python: {project['requires-python']}",
        f"License-Expression: {project['license']}",
        *(f"License-File: {name}" for name in project["license-files"]),
        *(f"Requires-Dist: {requirement}" for requirement in project["dependencies"]),
        "Description-Content-Type: text/markdown",
    ]
    return "\n".join(lines) + "\n\n" + readme


def write_wheel(
    folder: Path,
    dist: str,
    tag: str,
    metadata: str,
    files: dict[str, bytes],
    licenses: dict[str, bytes],
) -> str:
    """Writes `<dist>-<tag>.whl` into `folder` and returns its file name.

    Args:
        dist: name and version, "mmcv-2.1.0+rocm1".
        tag: "py3-none-any".
        metadata: the METADATA file.
        files: path in site-packages -> content.
        licenses: path in the licenses folder -> text.
    """
    info = f"{dist}.dist-info"
    pure = "true" if tag.endswith("-any") else "false"
    content = dict(sorted(files.items()))
    content.update({f"{info}/licenses/{name}": text for name, text in licenses.items()})
    content[f"{info}/METADATA"] = metadata.encode()
    about = ("Wheel-Version: 1.0", "Generator: mmcv", f"Root-Is-Purelib: {pure}", f"Tag: {tag}")
    content[f"{info}/WHEEL"] = ("\n".join(about) + "\n").encode()
    record = [f"{path},sha256={_digest(data)},{len(data)}\n" for path, data in content.items()]
    content[f"{info}/RECORD"] = ("".join(record) + f"{info}/RECORD,,\n").encode()
    name = f"{dist}-{tag}.whl"
    temporary = folder / f"{name}.tmp"
    with zipfile.ZipFile(temporary, "w", zipfile.ZIP_DEFLATED, compresslevel=6) as archive:
        for path, data in content.items():
            entry = zipfile.ZipInfo(path, _1980)
            entry.external_attr = (0o755 if path.endswith(".so") else 0o644) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, data)
    os.replace(temporary, folder / name)
    return name


def write_sdist(folder: Path, dist: str, metadata: str, files: dict[str, bytes]) -> str:
    """Writes `<dist>.tar.gz` into `folder` and returns its file name."""
    name = f"{dist}.tar.gz"
    temporary = folder / f"{name}.tmp"
    with tarfile.open(temporary, "w:gz", format=tarfile.PAX_FORMAT) as archive:
        for path, data in sorted({**files, "PKG-INFO": metadata.encode()}.items()):
            entry = tarfile.TarInfo(f"{dist}/{path}")
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    os.replace(temporary, folder / name)
    return name


def _digest(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
