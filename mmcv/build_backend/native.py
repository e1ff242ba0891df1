"""Compiles csrc/ into the two libraries, with ninja."""

import fcntl
import os
import platform
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from .environment import Torch
from .errors import BuildError
from .toolchain import Gpu, Toolchain, host_compiler_flags

# The libraries run with every torch from this version of the stable ABI on.
_DEFINES = ["-DTORCH_TARGET_VERSION=0x020a000000000000", "-DNDEBUG"]
_COMMON = ["-std=c++17", "-O3", *_DEFINES]
# Floating-point exceptions and errno are not looked at: without them, more loops vectorise.
_VECTOR_MATH = ["-fno-trapping-math", "-fno-math-errno"]
_WARNINGS = ["-Wall", "-Wextra", "-Wno-unused-parameter"]

_RULES = """\
ninja_required_version = 1.5

rule compile
  command = $compiler $flags -MD -MF $out.d -c $in -o $out
  depfile = $out.d
  deps = gcc
  description = compile $in

rule link
  command = $linker -shared $in -o $out $flags
  description = link $out
"""


def build_libraries(
    source: Path, build: Path, torch: Torch, tools: Toolchain, env: Mapping[str, str] = os.environ
) -> list[Path]:
    """Brings the libraries in `build` up to date with csrc/ and returns their paths.

    csrc/schema.cpp and csrc/cpu/*.cpp make libmmcv_cpu.so, csrc/gpu/*.cu make libmmcv_gpu.so. What
    is left from an earlier build is used again: only files that changed, or whose headers or flags
    changed, are compiled.

    Args:
        source: the folder that holds csrc/; it is only read.
        build: where objects and libraries go; made if missing.

    Raises:
        BuildError: ninja is missing, or a file does not compile (ninja has printed why).
    """
    ninja = shutil.which("ninja", path=env.get("PATH"))
    if ninja is None:
        raise BuildError("no ninja in PATH: pip install ninja, or leave out --no-build-isolation")
    with _locked(build):
        text, libraries = _ninja_file(source, build, torch, tools, env)
        if not (build / "stub.cpp").exists():
            (build / "stub.cpp").touch()
        write_text(build / "build.ninja", text)
        jobs = [f"-j{env['MAX_JOBS']}"] if env.get("MAX_JOBS", "").isdigit() else []
        result = subprocess.run([ninja, "-C", str(build), *jobs], env=dict(env), check=False)
    if result.returncode:
        raise BuildError(
            "the ops did not compile; the compiler's message is above (pip shows it in its output)"
        )
    return libraries


@contextmanager
def _locked(build: Path) -> Iterator[None]:
    """Two builds in the same folder wait for each other."""
    build.mkdir(parents=True, exist_ok=True)
    with (build / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _ninja_file(
    source: Path, build: Path, torch: Torch, tools: Toolchain, env: Mapping[str, str]
) -> tuple[str, list[Path]]:
    csrc = source / "csrc"
    includes = [f"-I{csrc}", "-isystem", str(torch.include)]
    # torch is there when these libraries are loaded. Empty libraries of the same names make the
    # linker note the dependency, so that nothing of torch but its headers is needed here.
    stubs = {name: build / "stubs" / name for name in ("libtorch.so", "libtorch_cpu.so")}
    cxx = list(tools.cxx)
    lines = [_RULES]
    for name, stub in stubs.items():
        lines.append(
            _edge("link", [build / "stub.cpp"], stub, linker=cxx, flags=[f"-Wl,-soname,{name}"])
        )

    def library(name: str, sources: list[Path], compile_with: dict, link_with: dict) -> Path:
        objects = []
        for file in sources:
            objects.append(build / "objects" / file.relative_to(csrc).with_suffix(".o"))
            lines.append(_edge("compile", [file], objects[-1], **compile_with))
        output = build / "lib" / name
        lines.append(_edge("link", objects, output, implicit=list(stubs.values()), **link_with))
        return output

    cpu_sources = [csrc / "schema.cpp", *sorted((csrc / "cpu").glob("*.cpp"))]
    cpu_flags = [
        *_COMMON,
        *_VECTOR_MATH,
        *_WARNINGS,
        *_cpu_arch_flags(env),
        "-fPIC",
        "-fvisibility=hidden",
        *includes,
    ]
    link_flags = ["-Wl,--no-as-needed", f"-L{build / 'stubs'}", "-ltorch", "-ltorch_cpu"]
    libraries = [
        library(
            "libmmcv_cpu.so",
            cpu_sources,
            dict(compiler=cxx, flags=cpu_flags),
            dict(linker=cxx, flags=link_flags),
        )
    ]
    gpu_sources = sorted((csrc / "gpu").glob("*.cu"))
    if tools.gpu and gpu_sources:
        compiler, flags = gpu_compile_command(tools.gpu, includes, env)
        linker, extra = _gpu_link(tools.gpu, torch, tools.cxx, env)
        libraries.append(
            library(
                "libmmcv_gpu.so",
                gpu_sources,
                dict(compiler=compiler, flags=flags),
                dict(linker=linker, flags=[*map(_through(tools.gpu), link_flags), *extra]),
            )
        )
    lines.append(f"default {' '.join(_escape(str(path)) for path in libraries)}\n")
    return "\n".join(lines), libraries


def _cpu_arch_flags(env: Mapping[str, str]) -> list[str]:
    arch = env.get("MMCV_CPU_ARCH") or ("x86-64-v2" if platform.machine() == "x86_64" else "")
    return [f"-march={arch}"] if arch else []


def gpu_compile_command(
    gpu: Gpu, includes: list[str], env: Mapping[str, str]
) -> tuple[list[str], list[str]]:
    if gpu.backend == "cuda":
        host = [
            "-Xcompiler=-fPIC,-fvisibility=hidden,-Wall",
            "--expt-relaxed-constexpr",
            "-DUSE_CUDA",
        ]
        return [gpu.compiler], [
            *_COMMON,
            *host,
            *host_compiler_flags(gpu, env),
            *gpu.arch_flags,
            *includes,
        ]
    # torch's stream function sits behind USE_ROCM or USE_CUDA, depending on how its headers were
    # made. -munsafe-fp-atomics: float atomics of the hardware, where memory is not fine-grained.
    host = [
        "-x",
        "hip",
        "-fPIC",
        "-fvisibility=hidden",
        "-DUSE_ROCM",
        "-DUSE_CUDA",
        "-D__HIP_PLATFORM_AMD__=1",
    ]
    return [gpu.compiler], [
        *host,
        *_COMMON,
        *_WARNINGS,
        "-munsafe-fp-atomics",
        *gpu.arch_flags,
        *includes,
    ]


def _gpu_link(
    gpu: Gpu, torch: Torch, cxx: tuple[str, ...], env: Mapping[str, str]
) -> tuple[list[str], list[str]]:
    if gpu.backend == "cuda":
        return [gpu.compiler], ["-cudart=static", *host_compiler_flags(gpu, env)]
    # One HIP runtime per process: the one that torch brings along, if it does.
    bundled = sorted((torch.folder / "lib").glob("libamdhip64.so*"))
    folder = bundled[0].parent if bundled else Path(gpu.compiler).resolve().parent.parent / "lib"
    name = f"-l:{bundled[0].name}" if bundled else "-lamdhip64"
    return list(cxx), [f"-L{folder}", name]


def _through(gpu: Gpu):
    """nvcc hands a linker flag on as -Xlinker."""
    if gpu.backend == "cuda":
        return lambda flag: flag.replace("-Wl,", "-Xlinker=")
    return lambda flag: flag


def _edge(
    rule: str, inputs: list[Path], output: Path, implicit: list[Path] = (), **variables: list[str]
) -> str:
    names = [" ".join(_escape(str(path)) for path in paths) for paths in (inputs, implicit)]
    text = (
        f"build {_escape(str(output))}: {rule} {names[0]}"
        + (f" | {names[1]}" if implicit else "")
        + "\n"
    )
    return text + "".join(
        f"  {name} = {shlex.join(words).replace('$', '$$')}\n" for name, words in variables.items()
    )


def _escape(path: str) -> str:
    return path.replace("$", "$$").replace(" ", "$ ").replace(":", "$:")


def write_text(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".tmp")
    temporary.write_text(text)
    os.replace(temporary, path)
