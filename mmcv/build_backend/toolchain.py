"""Decides what to build: the C++ compiler, the GPU backend and the architectures."""

import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from .environment import Torch
from .errors import BuildError

DEFAULT_CUDA_ARCHS = "8.0;9.0+PTX"
DEFAULT_HIP_ARCHS = "gfx90a;gfx942;gfx950"


@dataclass(frozen=True)
class _Vendor:
    title: str
    compiler: str
    roots: tuple[str, ...]  # variables that name the folder of an installation
    standard_root: str


_VENDORS = {
    "cuda": _Vendor("CUDA", "nvcc", ("CUDA_HOME", "CUDA_PATH"), "/usr/local/cuda"),
    "hip": _Vendor("ROCm", "hipcc", ("ROCM_PATH", "ROCM_HOME", "HIP_PATH"), "/opt/rocm"),
}


@dataclass(frozen=True)
class Gpu:
    """A GPU compiler that works."""

    backend: str  # "cuda" or "hip"
    compiler: str  # path of nvcc or hipcc
    version: str  # release of CUDA or HIP
    archs: tuple[str, ...]  # "8.0", "9.0+PTX" or "gfx942"

    @property
    def arch_flags(self) -> list[str]:
        if self.backend == "hip":
            return [f"--offload-arch={arch}" for arch in self.archs]
        flags = []
        for arch in self.archs:
            number = arch.removesuffix("+PTX").replace(".", "")
            flags.append(f"-gencode=arch=compute_{number},code=sm_{number}")
            if arch.endswith("+PTX"):
                flags.append(f"-gencode=arch=compute_{number},code=compute_{number}")
        return flags


@dataclass(frozen=True)
class Toolchain:
    cxx: tuple[str, ...]  # the C++ compiler, with a launcher such as ccache before it
    cxx_version: str  # "GCC 12.2.0"
    gpu: Gpu | None
    note: str  # why there is no GPU library, "" if there is one


def choose_toolchain(torch: Torch, env: Mapping[str, str] = os.environ) -> Toolchain:
    """Picks the compilers for `torch`.

    The GPU backend is the one that torch was built for, if its compiler is there, unless `MMCV_GPU`
    (cuda, hip or none) decides.

    Raises:
        BuildError: a compiler is missing or does not work, or a variable is not understood.
    """
    cxx, cxx_version = _find_cxx(env)
    gpu, note = _find_gpu(torch, env)
    return Toolchain(cxx, cxx_version, gpu, note)


def _find_cxx(env: Mapping[str, str]) -> tuple[tuple[str, ...], str]:
    command = shlex.split(env.get("CXX", ""))
    if not command:
        command = [
            name for name in ("g++", "c++", "clang++") if shutil.which(name, path=env.get("PATH"))
        ][:1]
    advice = (
        "Install one (Debian, Ubuntu: apt install g++), or set MMCV_WITH_OPS=0 for mmcv without ops"
    )
    if not command:
        raise BuildError(
            f"no C++ compiler: none of g++, c++, clang++ is in PATH and CXX is not set. {advice}"
        )
    macros = _run([*command, "-dM", "-E", "-x", "c++", "/dev/null"], env)
    if macros.returncode:
        raise BuildError(
            f"the C++ compiler {shlex.join(command)} does not work: {_first_line(macros)}. {advice}"
        )
    found = dict(re.findall(r"^#define (\w+) (.+)$", macros.stdout, re.MULTILINE))
    if "__clang__" in found:
        parts = ("__clang_major__", "__clang_minor__", "__clang_patchlevel__")
        return tuple(command), "clang " + ".".join(found[part] for part in parts)
    parts = ("__GNUC__", "__GNUC_MINOR__", "__GNUC_PATCHLEVEL__")
    return tuple(command), "GCC " + ".".join(found.get(part, "?") for part in parts)


def _find_gpu(torch: Torch, env: Mapping[str, str]) -> tuple[Gpu | None, str]:
    wanted = env.get("MMCV_GPU", "").lower()
    if wanted not in ("", "cuda", "hip", "none"):
        raise BuildError(f"MMCV_GPU must be cuda, hip or none, got {wanted!r}")
    if wanted == "none":
        return None, "MMCV_GPU=none"
    backend = wanted or ("hip" if torch.hip else "cuda" if torch.cuda else "")
    if not backend:
        return None, f"torch {torch.version} is a CPU build"
    vendor = _VENDORS[backend]
    compiler = _which(vendor, env)
    if compiler is None:
        missing = (
            f"there is no {vendor.compiler} in PATH, {vendor.roots[0]}, {vendor.standard_root}"
        )
        if wanted:
            raise BuildError(f"MMCV_GPU={wanted}, but {missing}")
        return None, f"torch {torch.version} is a {vendor.title} build, but {missing}"
    archs = _cuda_archs(env) if backend == "cuda" else _hip_archs(env)
    gpu = Gpu(backend, compiler, _gpu_version(compiler, env), archs)
    _try_out(gpu, env)
    return gpu, ""


def _which(vendor: _Vendor, env: Mapping[str, str]) -> str | None:
    folders = [f"{env[root]}/bin" for root in vendor.roots if env.get(root)]
    path = os.pathsep.join([*folders, env.get("PATH", ""), f"{vendor.standard_root}/bin"])
    return shutil.which(vendor.compiler, path=path)


def _cuda_archs(env: Mapping[str, str]) -> tuple[str, ...]:
    archs = (
        _split(env.get("TORCH_CUDA_ARCH_LIST", ""))
        or _present_cuda_archs(env)
        or _split(DEFAULT_CUDA_ARCHS)
    )
    for arch in archs:
        if not re.fullmatch(r"\d+\.\d[af]?(\+PTX)?", arch):
            raise BuildError(
                f"TORCH_CUDA_ARCH_LIST must be a list such as {DEFAULT_CUDA_ARCHS!r}, got {arch!r}"
            )
    return archs


def _present_cuda_archs(env: Mapping[str, str]) -> tuple[str, ...]:
    smi = shutil.which("nvidia-smi", path=env.get("PATH"))
    if smi is None:
        return ()
    answer = _run([smi, "--query-gpu=compute_cap", "--format=csv,noheader"], env)
    return tuple(sorted(set(re.findall(r"^\d+\.\d$", answer.stdout, re.MULTILINE)), key=float))


def _hip_archs(env: Mapping[str, str]) -> tuple[str, ...]:
    archs = _split(env.get("PYTORCH_ROCM_ARCH", "")) or _split(DEFAULT_HIP_ARCHS)
    for arch in archs:
        if not re.fullmatch(r"gfx[0-9a-f]{3,4}(:[a-z]+[+-])*", arch):
            raise BuildError(
                f"PYTORCH_ROCM_ARCH must be a list such as {DEFAULT_HIP_ARCHS!r}, got {arch!r}"
            )
    return archs


def _split(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(re.split(r"[;,\s]+", text.strip()))) if text.strip() else ()


def _gpu_version(compiler: str, env: Mapping[str, str]) -> str:
    answer = _run([compiler, "--version"], env)
    found = re.search(r"release (\d+\.\d+)|HIP version: (\d+\.\d+(?:\.\d+)?)", answer.stdout)
    return (found[1] or found[2]) if found else "unknown"


def _try_out(gpu: Gpu, env: Mapping[str, str]) -> None:
    """Compiles one line, so that a broken compiler is told apart from a broken source file."""
    header, language = (
        ("cuda_runtime.h", []) if gpu.backend == "cuda" else ("hip/hip_runtime.h", ["-x", "hip"])
    )
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "try.cu"
        source.write_text(f"#include <{header}>\n__global__ void kernel(int* p) {{ *p = 1; }}\n")
        command = [gpu.compiler, *language, *gpu.arch_flags, *host_compiler_flags(gpu, env)]
        answer = _run([*command, "-c", str(source), "-o", str(Path(folder) / "try.o")], env)
    if answer.returncode:
        raise BuildError(
            f"{gpu.compiler} ({_VENDORS[gpu.backend].title} {gpu.version}) cannot compile for "
            f"{';'.join(gpu.archs)}: {_first_line(answer)}. Repair it, or set MMCV_GPU=none for a "
            "CPU build"
        )


def host_compiler_flags(gpu: Gpu, env: Mapping[str, str] = os.environ) -> list[str]:
    """nvcc compiles host code with the C++ compiler of CXX, when that is set."""
    cxx = shlex.split(env.get("CXX", ""))
    return ["-ccbin", cxx[-1]] if gpu.backend == "cuda" and cxx else []


def _run(command: list[str], env: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(command, env=dict(env), capture_output=True, text=True, check=False)
    except OSError as error:
        return subprocess.CompletedProcess(command, 127, "", str(error))


def _first_line(answer: subprocess.CompletedProcess[str]) -> str:
    """The first line of an answer that speaks of an error, else its first line."""
    lines = (answer.stderr + answer.stdout).strip().splitlines() or [
        f"exit status {answer.returncode}"
    ]
    return next((line for line in lines if "error" in line.lower()), lines[0]).strip()
