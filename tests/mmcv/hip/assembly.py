"""What a kernel uses, read from the compiler's assembly for an AMD GPU."""

import re
import subprocess
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

_KERNEL = re.compile(
    r"^\t\.amdhsa_kernel (?P<name>\S+)$.*?^; Kernel info:\n(?P<info>(?:^;[^\n]*\n)+)", re.M | re.S
)
_MEMORY = re.compile(r"^\t(?:global|flat|buffer)_(load|store|atomic)_(\S+)", re.M)
_WIDTHS = {"dwordx4": 16, "dwordx3": 12, "dwordx2": 8, "dword": 4}


@dataclass(frozen=True)
class Kernel:
    """One instance of a kernel, compiled for one architecture.

    Registers are per lane, scratch is bytes per lane (where spilled registers go), LDS bytes per block as far as
    known when compiling, occupancy waves per SIMD. Loads and stores: bytes per lane → instructions. Atomics: name of
    the instruction → instructions.
    """

    name: str
    arch: str
    vgprs: int
    agprs: int
    sgprs: int
    scratch: int
    lds: int
    occupancy: int
    loads: dict[int, int]
    stores: dict[int, int]
    atomics: dict[str, int]


def kernels(assembly: str, arch: str) -> Iterator[Kernel]:
    """The kernels of an assembly file, mangled names."""
    for match in _KERNEL.finditer(assembly):
        name = match["name"]
        start = assembly.index(f"\n{name}:")
        body = assembly[start : match.start()]
        info = dict(re.findall(r"^; (\w+)\s*: (\d+)", match["info"], re.M))
        counts: dict[str, Counter] = {"load": Counter(), "store": Counter(), "atomic": Counter()}
        for kind, what in _MEMORY.findall(body):
            counts[kind][what if kind == "atomic" else _width(what)] += 1
        yield Kernel(
            name=name,
            arch=arch,
            vgprs=int(info["NumVgprs"]),
            agprs=int(info["NumAgprs"]),
            sgprs=int(info["TotalNumSgprs"]),
            scratch=int(info["ScratchSize"]),
            lds=int(info["LDSByteSize"]),
            occupancy=int(info["Occupancy"]),
            loads=dict(sorted(counts["load"].items())),
            stores=dict(sorted(counts["store"].items())),
            atomics=dict(sorted(counts["atomic"].items())),
        )


def _width(instruction: str) -> int:
    for name, width in _WIDTHS.items():
        if instruction.startswith(name):
            return width
    return 2 if "short" in instruction or "b16" in instruction else 1


def demangle(names: list[str]) -> list[str]:
    """C++ names without namespaces and parameters: `nms_mask_kernel<float>`."""
    found = subprocess.run(
        ["c++filt", "-p"], input="\n".join(names), capture_output=True, text=True, check=True
    ).stdout.splitlines()
    return [re.sub(r"^void ", "", re.sub(r"\b\w+::(?=\w)", "", name)) for name in found]
