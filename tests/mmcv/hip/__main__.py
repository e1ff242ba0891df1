"""`make hip-check`: compiles the whole GPU library for AMD GPUs, and writes down what each kernel uses.

It fails if a file does not compile, if a kernel uses scratch memory (its registers do not suffice), or if one adds
floating-point numbers by compare-and-swap, which the hardware can do. Files that did not change are not compiled again.
"""

import argparse
import hashlib
import json
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.mmcv.hip.assembly import Kernel, demangle, kernels
from tests.mmcv.hip.toolchain import NoToolchain, Run, find_toolchain

ROOT = Path(__file__).parents[3]
sys.path.insert(0, str(ROOT / "mmcv"))
from build_backend.environment import find_torch  # noqa: E402
from build_backend.native import gpu_compile_command  # noqa: E402
from build_backend.toolchain import DEFAULT_HIP_ARCHS, Gpu  # noqa: E402

ARCHS = tuple(DEFAULT_HIP_ARCHS.split(";"))
# Kernels that may compare and swap: they insert keys into hash tables. Nothing adds numbers so.
HASHING: tuple[str, ...] = ()


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--build", type=Path, default=ROOT / "build" / "hip")
    parser.add_argument(
        "--cache",
        type=Path,
        default=Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")).expanduser() / "autodrive",
        help="where the toolchain is kept",
    )
    parser.add_argument(
        "--table", type=Path, default=ROOT / "benchmarks" / "results" / "hip-resources.md"
    )
    parser.add_argument(
        "--optional", action="store_true", help="succeed if no toolchain can be had"
    )
    args = parser.parse_args()
    try:
        run = find_toolchain(args.cache)
    except NoToolchain as error:
        print(f"hip-check: skipped: {error}")
        return 0 if args.optional else 1
    found = compile_all(run, args.build)
    if found is None:
        return 1
    problems = judge(found)
    text = table(found, run("hipcc --version", {}).stdout)
    args.table.write_text(text)
    print(f"hip-check: {len(found)} kernels for {', '.join(ARCHS)}; table: {args.table}")
    for problem in problems:
        print(f"hip-check: {problem}")
    return 1 if problems else 0


def compile_all(run: Run, build: Path) -> list[Kernel] | None:
    """Compiles every csrc/gpu/*.cu, links them; None, after the compiler's messages, if that fails."""
    csrc, include = ROOT / "mmcv" / "csrc", find_torch().include
    build.mkdir(parents=True, exist_ok=True)
    folders = {"/csrc": csrc, "/torch-include": include, "/build": build}
    compiler, flags = gpu_compile_command(
        Gpu("hip", "hipcc", "", ARCHS), ["-I/csrc", "-isystem", "/torch-include"], {}
    )
    sources = sorted((csrc / "gpu").glob("*.cu"))

    def compile_one(source: Path) -> str:
        name, stamp = source.stem, build / f"{source.stem}.json"
        if _fresh(stamp, csrc, flags):
            return ""
        command = [*compiler, *flags, "-MD", "-MF", f"/build/{name}.d", "-save-temps=obj"]
        done = run(
            f"cd /build && {' '.join(command)} -c /csrc/gpu/{source.name} -o /build/{name}.o",
            folders,
        )
        if done.returncode:
            return f"{source.relative_to(ROOT)}\n{done.stdout}"
        for suffix in ("bc", "hipi", "out", "out.resolution.txt"):
            for left_over in build.glob(f"{name}-h*.{suffix}"):
                left_over.unlink()
        words = (build / f"{name}.d").read_text().replace("\\\n", " ").split()
        used = sorted({word.removeprefix("/csrc/") for word in words if word.startswith("/csrc/")})
        stamp.write_text(json.dumps({"digest": _digest(csrc, used, flags), "files": used}))
        print(f"compiled {source.name}", flush=True)
        return ""

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        errors = [error for error in pool.map(compile_one, sources) if error]
    if not errors:
        objects = " ".join(f"/build/{source.stem}.o" for source in sources)
        linked = run(f"hipcc -shared -fPIC {objects} -o /build/libmmcv_gpu.so -lamdhip64", folders)
        if linked.returncode:
            errors = [linked.stdout]
    for error in errors:
        print(f"hip-check: {error}")
    if errors:
        return None
    return [
        kernel
        for source in sources
        for arch in ARCHS
        for kernel in kernels(
            (build / f"{source.stem}-hip-amdgcn-amd-amdhsa-{arch}.s").read_text(), arch
        )
    ]


def _digest(csrc: Path, files: list[str], flags: list[str]) -> str:
    content = hashlib.sha256(" ".join(flags).encode())
    for file in files:
        content.update((csrc / file).read_bytes() if (csrc / file).exists() else b"?")
    return content.hexdigest()


def _fresh(stamp: Path, csrc: Path, flags: list[str]) -> bool:
    if not stamp.exists():
        return False
    known = json.loads(stamp.read_text())
    return known["digest"] == _digest(csrc, known["files"], flags)


def judge(found: list[Kernel]) -> list[str]:
    """One line for each kernel that breaks a rule."""
    problems = []
    for kernel, name in zip(found, demangle([kernel.name for kernel in found])):
        if kernel.scratch:
            problems.append(f"{name} for {kernel.arch} uses {kernel.scratch} bytes of scratch")
        swaps = sum(n for what, n in kernel.atomics.items() if "cmpswap" in what)
        if swaps and not name.startswith(HASHING):
            problems.append(f"{name} for {kernel.arch} has {swaps} compare-and-swap instructions")
    return problems


def table(found: list[Kernel], version: str) -> str:
    """Markdown, one line per kernel instance, numbers of the architectures side by side where they differ."""
    compiler = next((line for line in version.splitlines() if "clang version" in line), "")
    lines = [
        "# What each kernel uses on AMD GPUs",
        "",
        f"Written by `make hip-check` with {version.splitlines()[0]}, {compiler}. Nothing here was run on an AMD GPU.",
        "",
        f"Numbers are those of {', '.join(ARCHS)}, in this order where they differ. Registers per lane; LDS in bytes",
        "per block, as far as known when compiling; occupancy in waves per SIMD; scratch is 0 everywhere, or the check",
        "fails. Loads and stores: bytes per lane × instructions in the code.",
        "",
        "| kernel | VGPR | AGPR | SGPR | LDS | occupancy | loads | stores | atomics |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    instances: dict[str, list[Kernel]] = {}
    for kernel in found:
        instances.setdefault(kernel.name, []).append(kernel)
    for name, same in sorted(zip(demangle(list(instances)), instances.values())):
        cells = [
            _side_by_side([getattr(kernel, field) for kernel in same])
            for field in ("vgprs", "agprs", "sgprs", "lds", "occupancy")
        ]
        cells += [
            _side_by_side([_counts(kernel.loads) for kernel in same]),
            _side_by_side([_counts(kernel.stores) for kernel in same]),
            _side_by_side([_counts(kernel.atomics) for kernel in same]),
        ]
        lines.append(f"| `{name}` | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _side_by_side(values: list) -> str:
    texts = [str(value) for value in values]
    return texts[0] if len(set(texts)) == 1 else " / ".join(text or "-" for text in texts)


def _counts(counts: dict) -> str:
    return ", ".join(f"{what}×{n}" for what, n in counts.items())


if __name__ == "__main__":
    sys.exit(main())
