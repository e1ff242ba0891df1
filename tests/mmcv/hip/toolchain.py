"""A hipcc to compile with: the machine's own, or Debian's in a throw-away chroot or container.

Debian sid carries clang with HIP 6.4, rocPRIM and hipCUB. Making the toolchain takes about a minute and 3 GB, once.
"""

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

PACKAGES = "hipcc libamdhip64-dev librocprim-dev libhipcub-dev librocthrust-dev g++ ca-certificates"
INSTALL = (
    # Mirrors that keep an old state are welcome: nothing here faces a network.
    "apt-get -o Acquire::Check-Valid-Until=false update -q && "
    f"DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends {PACKAGES} && apt-get clean"
)
IMAGE = "autodrive-hip-toolchain"

Run = Callable[[str, dict[str, Path]], subprocess.CompletedProcess]
"""Runs a shell command with folders of this machine at given absolute paths; those are all it may use."""


class NoToolchain(Exception):
    """There is no hipcc, and none can be made."""


def find_toolchain(cache: Path) -> Run:
    """The first that works: hipcc in PATH, a chroot (as root), a container (docker or podman).

    Raises:
        NoToolchain: saying what was looked for.
        subprocess.CalledProcessError: making the toolchain failed; its output has been printed.
    """
    if shutil.which("hipcc"):
        return _run_here
    if os.geteuid() == 0:
        return _chroot(cache / "hip-toolchain")
    for engine in ("docker", "podman"):
        if shutil.which(engine) and _succeeds(engine, "info"):
            return _container(engine)
    raise NoToolchain(
        "no hipcc in PATH, not root (to make a Debian chroot), and neither docker nor podman runs"
    )


def _run_here(command: str, folders: dict[str, Path]) -> subprocess.CompletedProcess:
    for place, folder in folders.items():
        command = command.replace(place, shlex.quote(str(folder)))
    return _shell(["sh", "-c", command])


def _chroot(root: Path) -> Run:
    if not (root / "usr/bin/hipcc").exists():
        shutil.rmtree(root, ignore_errors=True)
        root.mkdir(parents=True)
        print(f"making a Debian chroot with hipcc in {root}", flush=True)
        if not shutil.which("debootstrap"):
            _make(["sh", "-c", "apt-get update -q && apt-get install -y -q debootstrap"])
        unfinished = root.with_name(root.name + ".new")
        shutil.rmtree(unfinished, ignore_errors=True)
        _make(["debootstrap", "--variant=minbase", "sid", str(unfinished), _mirror()])
        _make(["chroot", str(unfinished), "sh", "-c", INSTALL])
        shutil.rmtree(root)
        unfinished.rename(root)

    def run(command: str, folders: dict[str, Path]) -> subprocess.CompletedProcess:
        # In a mount namespace of its own, so that nothing stays mounted.
        steps = [f'mount -t proc proc "{root}/proc"']
        for place, folder in folders.items():
            (root / place.lstrip("/")).mkdir(parents=True, exist_ok=True)
            steps.append(f'mount --bind {shlex.quote(str(folder))} "{root}{place}"')
        steps.append(f'exec chroot "{root}" sh -c {shlex.quote(command)}')
        return _shell(["unshare", "--mount", "sh", "-ec", "\n".join(steps)])

    return run


def _container(engine: str) -> Run:
    if not _succeeds(engine, "image", "inspect", IMAGE):
        print(f"making the image {IMAGE}", flush=True)
        file = f"FROM debian:sid\nRUN {INSTALL}\n"
        subprocess.run([engine, "build", "-t", IMAGE, "-"], input=file.encode(), check=True)

    def run(command: str, folders: dict[str, Path]) -> subprocess.CompletedProcess:
        mounts = [f"--volume={folder}:{place}" for place, folder in folders.items()]
        return _shell([engine, "run", "--rm", *mounts, IMAGE, "sh", "-c", command])

    return run


def _mirror() -> str:
    """The Debian mirror that this machine uses, if it is a Debian."""
    files = [Path("/etc/apt/sources.list"), *sorted(Path("/etc/apt").glob("sources.list.d/*"))]
    for file in files:
        if file.is_file():
            found = re.search(r"\b\w+://\S+/debian/?(?=\s|$)", file.read_text(), re.MULTILINE)
            if found:
                return found[0]
    return "http://deb.debian.org/debian"


def _make(command: list[str]) -> None:
    done = _shell(command)
    if done.returncode:
        print(done.stdout[-4000:])
        done.check_returncode()


def _shell(command: list[str]) -> subprocess.CompletedProcess:
    return subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )


def _succeeds(*command: str) -> bool:
    return _shell(list(command)).returncode == 0
