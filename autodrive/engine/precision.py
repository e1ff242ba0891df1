"""Switches that make a model faster without touching its code: bf16, channels_last, torch.compile, ROCm's settings.

They are the config's dict `speed`; change one with `--cfg-options speed.<name>=<value>`:

bf16          training runs under bf16 autocast (also `autodrive train --amp`); a CPU without bf16 instructions, where
              it would be several times slower, trains in fp32
channels_last convolutional parts in NHWC; on ROCm with MIOpen's two variables for NHWC convolution and batch norm
compile       torch.compile of the backbone and the neck
miopen_db     folder for MIOpen's tuning results and compiled kernels, best a node-local one ("" keeps MIOpen's own)
tunable_op    "tune": try GEMM kernels at first use and write down the fastest; "use": what was written down; "": off

The last two do something on ROCm only, and a variable that is set in the environment wins over the config.
"""

import os
import platform
import sys
from pathlib import Path

import torch
from mmengine.dist import is_main_process
from torch import nn

DEFAULTS = {
    "bf16": False,
    "channels_last": False,
    "compile": False,
    "miopen_db": "",
    "tunable_op": "",
}
CONVOLUTIONAL_PARTS = ("img_backbone", "img_neck")


def speed_options(config: dict) -> dict:
    """The config's `speed` over the defaults; ValueError for an unknown switch or value."""
    chosen = dict(config.get("speed") or {})
    unknown = chosen.keys() - DEFAULTS.keys()
    if unknown:
        raise ValueError(f"speed has no {sorted(unknown)}; known: {sorted(DEFAULTS)}")
    speed = {**DEFAULTS, **chosen}
    if speed["tunable_op"] not in ("", "tune", "use"):
        raise ValueError(
            f'speed.tunable_op must be "", "tune" or "use", got {speed["tunable_op"]!r}'
        )
    return speed


def cpu_has_bf16(cpu_info: str | Path = "/proc/cpuinfo") -> bool:
    """Whether this CPU multiplies bf16 in hardware (AVX-512 BF16, AMX, or Arm's BF16 extension)."""
    try:
        lines = Path(cpu_info).read_text().splitlines()
    except OSError:
        return False
    flags = next((line for line in lines if line.lower().startswith(("flags", "features"))), "")
    wanted = {"bf16"} if platform.machine() == "aarch64" else {"avx512_bf16", "amx_bf16"}
    return bool(wanted & set(flags.split()))


def set_environment(speed: dict) -> None:
    """Environment variables of ROCm's libraries, to be set before the first convolution and GEMM."""
    if torch.version.hip is None:
        return
    values = {}
    if speed["channels_last"]:
        values["PYTORCH_MIOPEN_SUGGEST_NHWC"] = "1"
        values["PYTORCH_MIOPEN_SUGGEST_NHWC_BATCHNORM"] = "1"
    if speed["miopen_db"]:
        folder = Path(speed["miopen_db"]).expanduser().resolve()
        for variable, name in (("MIOPEN_USER_DB_PATH", "db"), ("MIOPEN_CUSTOM_CACHE_DIR", "cache")):
            # Made here and not by MIOpen, where processes would race for it.
            (folder / name).mkdir(parents=True, exist_ok=True)
            values[variable] = str(folder / name)
    if speed["tunable_op"]:
        values["PYTORCH_TUNABLEOP_ENABLED"] = "1"
        values["PYTORCH_TUNABLEOP_TUNING"] = "1" if speed["tunable_op"] == "tune" else "0"
    for variable, value in values.items():
        os.environ.setdefault(variable, value)


def speed_up(model: nn.Module, speed: dict) -> None:
    """Applies the switches that concern modules, in place; names of parameters stay as they are."""
    for name in CONVOLUTIONAL_PARTS:
        part = getattr(model, name, None)
        if part is None:
            continue
        if speed["channels_last"]:
            part.to(memory_format=torch.channels_last)
            if not speed["compile"]:  # hooks would break the graph
                check_layout_once(part, name)
        if speed["compile"]:
            part.compile()


def check_layout_once(part: nn.Module, name: str) -> None:
    """Looks at every layer's output in the first forward pass, and says so if one falls back to NCHW."""
    lost: list[str] = []

    def look(path: str):
        def hook(module: nn.Module, inputs: tuple, output) -> None:
            is_image = isinstance(output, torch.Tensor) and output.dim() == 4
            if is_image and not output.is_contiguous(memory_format=torch.channels_last):
                lost.append(path)

        return hook

    handles = [
        module.register_forward_hook(look(path)) for path, module in part.named_modules() if path
    ]

    def finish(module: nn.Module, inputs: tuple, output) -> None:
        for handle in handles:
            handle.remove()
        if lost and is_main_process():
            print(
                f"warning: channels_last is lost in {name}.{lost[0]} ({len(lost)} layers give NCHW): "
                "speed.channels_last=False may be faster",
                file=sys.stderr,
            )

    handles.append(part.register_forward_hook(finish))
