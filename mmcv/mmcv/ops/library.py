"""Loads the compiled ops, and says in one line what is missing when an op cannot run.

The ops are registered in torch's dispatcher under `mmcv::`, by two libraries: libmmcv_cpu.so
(schemas and CPU kernels, loaded on import) and libmmcv_gpu.so (CUDA or HIP kernels, loaded when
torch first uses the GPU, so that importing mmcv neither starts the GPU runtime nor needs one). An
op without a kernel for the GPU gets one that raises that line.
"""

import json
import re
from collections.abc import Callable
from pathlib import Path

import torch

_FOLDER = Path(__file__).parents[1] / "lib"
_TITLES = {"cuda": "CUDA", "hip": "ROCm"}


def _read_info() -> dict:
    file = _FOLDER / "build_info.json"
    return json.loads(file.read_text()) if file.is_file() else {"ops": False}


INFO: dict = _read_info()
"""What was built: ops, torch, compiler, note, gpu: None or backend, version, archs."""


def summary() -> str:
    """What was built: "for CPU and CUDA 13.0 (8.0, 9.0+PTX), by GCC 12.2.0 with torch 2.14.1"."""
    if not INFO["ops"]:
        return "without compiled ops"
    gpu = INFO["gpu"]
    what = "for CPU only"
    if gpu:
        what = f"for CPU and {_TITLES[gpu['backend']]} {gpu['version']} ({', '.join(gpu['archs'])})"
    return f"{what}, by {INFO['compiler']} with torch {INFO['torch']}"


def _message(missing: str, variables: str = "") -> str:
    command = f"{variables} MMCV_WITH_OPS=1 pip install --force-reinstall --no-deps ./mmcv"
    return f"mmcv.ops was built {summary()}; {missing}. Rebuild it: {command.strip()}"


class _Absent:
    """Stands in for `torch.ops.mmcv`: every op raises the same line."""

    def __init__(self, reason: str):
        self._reason = reason

    def __getattr__(self, name: str) -> Callable:
        if name.startswith("__"):
            raise AttributeError(name)
        reason = self._reason

        def absent(*args, **kwargs):
            raise RuntimeError(f"{name}: {reason}")

        return absent


def _load_cpu() -> str:
    """Loads the CPU library; returns why it could not, or ""."""
    if not INFO["ops"]:
        return _message("it was installed with MMCV_WITH_OPS=0")
    try:
        torch.ops.load_library(str(_FOLDER / "libmmcv_cpu.so"))
    except OSError as error:
        return _message(
            f"torch {torch.__version__} cannot load its CPU library ({_one_line(error)})"
        )
    return ""


def _one_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0]


CPU_PROBLEM: str = _load_cpu()
ops = _Absent(CPU_PROBLEM) if CPU_PROBLEM else torch.ops.mmcv
"""The compiled ops, `ops.nms(...)`. Without them, calling one raises a RuntimeError of one line."""


def register_fake(name: str) -> Callable[[Callable], Callable]:
    """`torch.library.register_fake("mmcv::" + name)`, if there are compiled ops."""
    if CPU_PROBLEM:
        return lambda function: function
    return torch.library.register_fake(f"mmcv::{name}")


def register_autograd(
    name: str, backward: Callable, *, setup_context: Callable | None = None
) -> None:
    """`torch.library.register_autograd("mmcv::" + name, ...)`, if there are compiled ops."""
    if not CPU_PROBLEM:
        torch.library.register_autograd(f"mmcv::{name}", backward, setup_context=setup_context)


def arch_problem(found: str) -> str:
    """Says what to do if the GPU library has no code for a GPU; "" if it has.

    Args:
        found: "gfx90a:sramecc+:xnack-" (suffixes do not matter) or a compute capability, "9.0".
    """
    gpu = INFO["gpu"]
    if gpu["backend"] == "hip":
        name, variable = found.split(":")[0], "PYTORCH_ROCM_ARCH"
        fits = name in [arch.split(":")[0] for arch in gpu["archs"]]
    else:
        name, variable = found, "TORCH_CUDA_ARCH_LIST"
        fits = any(_runs_on(arch, found) for arch in gpu["archs"])
    return "" if fits else _message(f"this GPU is {name}", f"{variable}={name}")


def _runs_on(arch: str, capability: str) -> bool:
    """Code for 8.0 runs on 8.x; intermediate code (+PTX) on all later GPUs; 9.0a on 9.0 only."""
    built = tuple(map(int, re.findall(r"\d+", arch)))
    present = tuple(map(int, capability.split(".")))
    if arch.endswith(("a", "f")):
        return built == present
    return built <= present and (built[0] == present[0] or arch.endswith("+PTX"))


def gpu_problem() -> str:
    """Why GPU tensors cannot be used, or "" after the GPU library was loaded."""
    if CPU_PROBLEM:
        return CPU_PROBLEM
    if not INFO["gpu"]:
        return _message(f"it has no GPU kernels ({INFO['note']})")
    backend = "hip" if torch.version.hip else "cuda"
    if INFO["gpu"]["backend"] != backend:
        return _message(
            f"torch {torch.__version__} is a {_TITLES[backend]} build", f"MMCV_GPU={backend}"
        )
    if torch.cuda.is_available():
        properties = torch.cuda.get_device_properties(torch.cuda.current_device())
        found = (
            properties.gcnArchName if backend == "hip" else f"{properties.major}.{properties.minor}"
        )
        problem = arch_problem(found)
        if problem:
            return problem
    try:
        torch.ops.load_library(str(_FOLDER / "libmmcv_gpu.so"))
    except OSError as error:
        return _message(
            f"torch {torch.__version__} cannot load its GPU library ({_one_line(error)})"
        )
    return ""


_fallbacks = torch.library.Library("mmcv", "FRAGMENT")


def _on_first_gpu_use() -> None:
    """Loads the GPU library, then gives each op that has no GPU kernel one that says why."""
    problem = gpu_problem()
    for qualified in torch._C._dispatch_get_all_op_names():
        if not qualified.startswith("mmcv::"):
            continue
        if not torch._C._dispatch_has_computed_kernel_for_dispatch_key(qualified, "CUDA"):
            name = qualified.removeprefix("mmcv::")
            reason = problem or "it has no GPU kernel yet; move its inputs to the CPU"
            _fallbacks.impl(name, _raiser(f"{name}: {reason}"), "CUDA")


def _raiser(message: str) -> Callable:
    def run(*args, **kwargs):
        raise RuntimeError(message)

    return run


if not CPU_PROBLEM:
    # Runs when torch starts the GPU runtime, or now if it has been started.
    torch.cuda._lazy_call(_on_first_gpu_use)
