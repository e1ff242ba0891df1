"""The build backend of mmcv: its decisions, its messages, and real builds of small sources."""

import base64
import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

MMCV = Path(__file__).parents[2] / "mmcv"


def _import_backend():
    folder = MMCV / "build_backend"
    spec = importlib.util.spec_from_file_location(
        "build_backend", folder / "__init__.py", submodule_search_locations=[str(folder)]
    )
    module = sys.modules["build_backend"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


backend = _import_backend()
from build_backend import environment, native, toolchain, upstream  # noqa: E402
from build_backend.environment import Torch  # noqa: E402
from build_backend.errors import BuildError  # noqa: E402

CUDA_TORCH = Torch(Path("/torch"), "2.12.0+cu130", "13.0", None)
ROCM_TORCH = Torch(Path("/torch"), "2.12.0+rocm7.1", None, "7.1.2")
CPU_TORCH = Torch(Path("/torch"), "2.12.0+cpu", None, None)


def make_torch(folder: Path, version: str, cuda="None", hip="None", headers=True) -> Path:
    folder.mkdir(parents=True)
    (folder / "version.py").write_text(
        f"from typing import Optional\n__version__ = '{version}'\ndebug = False\n"
        f"cuda: Optional[str] = {cuda}\nhip: Optional[str] = {hip}\n"
    )
    if headers:
        header = folder / "include/torch/csrc/stable/library.h"
        header.parent.mkdir(parents=True)
        header.touch()
    return folder


def make_program(path: Path, script: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def tools(tmp_path, monkeypatch):
    """An environment with a C++ compiler and nothing else; `add` puts programs into it."""
    for name, vendor in list(toolchain._VENDORS.items()):
        nowhere = toolchain._Vendor(vendor.title, vendor.compiler, vendor.roots, "/nonexistent")
        monkeypatch.setitem(toolchain._VENDORS, name, nowhere)
    bin_folder = tmp_path / "bin"

    class Tools:
        env = {"PATH": str(bin_folder)}  # noqa: RUF012

        def add(self, name: str, script: str) -> str:
            return str(make_program(bin_folder / name, script))

        def add_nvcc(self, ends="exit 0"):
            version = 'case "$*" in *--version*) echo "release 13.0, V13.0.88"; exit 0;; esac'
            return self.add("nvcc", f"{version}\n{ends}")

        def add_hipcc(self, ends="exit 0"):
            version = 'case "$*" in *--version*) echo "HIP version: 7.1.2"; exit 0;; esac'
            return self.add("hipcc", f"{version}\n{ends}")

        def choose(self, torch: Torch, **variables: str) -> toolchain.Toolchain:
            return toolchain.choose_toolchain(torch, {**self.env, **variables})

    found = Tools()
    macros = ("#define __GNUC__ 12", "#define __GNUC_MINOR__ 2", "#define __GNUC_PATCHLEVEL__ 0")
    found.add("g++", "\n".join(f"echo '{line}'" for line in macros))
    return found


# Finding torch


def test_torch_version_file_is_read_without_importing_torch(tmp_path):
    folder = make_torch(tmp_path / "torch", "2.10.0+rocm7.1", hip="'7.1.52802'")
    torch = environment.find_torch({"MMCV_TORCH_DIR": str(folder)})
    assert (torch.version, torch.cuda, torch.hip) == ("2.10.0+rocm7.1", None, "7.1.52802")


def test_torch_of_the_target_environment_is_found_from_an_isolated_build():
    """K27: pip hides site-packages from a build through PYTHONPATH and PYTHONNOUSERSITE."""
    import torch

    isolated = {**os.environ, "PYTHONPATH": "/nonexistent", "PYTHONNOUSERSITE": "1"}
    assert environment._ask(sys.executable, isolated) == Path(torch.__file__).parent


def test_missing_torch_is_one_clear_message(monkeypatch):
    monkeypatch.setattr(environment.PathFinder, "find_spec", lambda name: None)
    monkeypatch.setattr(environment, "_ask", lambda python, env: None)
    with pytest.raises(BuildError, match=r"no torch found.*torch>=2\.10.*MMCV_TORCH_DIR.*OPS=0"):
        environment.find_torch({})


def test_too_old_torch_is_named_with_its_version(tmp_path):
    folder = make_torch(tmp_path / "torch", "2.9.1+cu128")
    with pytest.raises(BuildError, match=r"torch 2\.9\.1\+cu128 in .* too old.*torch>=2\.10"):
        environment.find_torch({"MMCV_TORCH_DIR": str(folder)})


def test_torch_without_headers_is_refused(tmp_path):
    folder = make_torch(tmp_path / "torch", "2.12.0", headers=False)
    with pytest.raises(BuildError, match=r"torch 2\.12\.0 has no C\+\+ headers"):
        environment.find_torch({"MMCV_TORCH_DIR": str(folder)})


def test_torch_dir_that_holds_no_torch_is_refused(tmp_path):
    with pytest.raises(BuildError, match=f"MMCV_TORCH_DIR must be .* got {tmp_path}"):
        environment.find_torch({"MMCV_TORCH_DIR": str(tmp_path)})


# Choosing compilers


def test_cpu_torch_gives_a_cpu_build_even_with_nvcc(tools):
    tools.add_nvcc()
    found = tools.choose(CPU_TORCH)
    assert found.gpu is None and found.note == "torch 2.12.0+cpu is a CPU build"
    assert found.cxx_version == "GCC 12.2.0"


def test_backend_follows_torch_when_both_gpu_compilers_are_there(tools):
    tools.add_nvcc()
    tools.add_hipcc()
    assert tools.choose(CUDA_TORCH).gpu.backend == "cuda"
    assert tools.choose(ROCM_TORCH).gpu.backend == "hip"


def test_missing_gpu_compiler_gives_a_cpu_build_that_says_why(tools):
    tools.add_hipcc()
    found = tools.choose(CUDA_TORCH)
    assert found.gpu is None
    assert re.match(r"torch 2\.12\.0\+cu130 is a CUDA build, but there is no nvcc in", found.note)


def test_gpu_variable_overrides_what_torch_is(tools):
    tools.add_hipcc()
    assert tools.choose(CPU_TORCH, MMCV_GPU="hip").gpu.version == "7.1.2"
    assert tools.choose(ROCM_TORCH, MMCV_GPU="none").gpu is None


def test_gpu_asked_for_without_its_compiler_is_an_error(tools):
    with pytest.raises(BuildError, match="MMCV_GPU=hip, but there is no hipcc in PATH"):
        tools.choose(CUDA_TORCH, MMCV_GPU="hip")
    with pytest.raises(BuildError, match="MMCV_GPU must be cuda, hip or none, got 'rocm'"):
        tools.choose(CUDA_TORCH, MMCV_GPU="rocm")


def test_nvcc_that_cannot_compile_is_an_error_with_its_own_words(tools):
    tools.add_nvcc("echo 'nvcc note'; echo 'fatal error: unsupported GNU version!' >&2; exit 1")
    message = (
        r"CUDA 13\.0\) cannot compile for 8\.0;9\.0\+PTX: fatal error: unsupported GNU version!"
    )
    with pytest.raises(BuildError, match=message + ".*MMCV_GPU=none"):
        tools.choose(CUDA_TORCH)


def test_nvcc_is_found_through_cuda_home(tools, tmp_path):
    nvcc = make_program(tmp_path / "cuda/bin/nvcc", 'echo "release 12.9, V12.9"')
    assert tools.choose(CUDA_TORCH, CUDA_HOME=str(tmp_path / "cuda")).gpu.compiler == str(nvcc)


def test_missing_cpp_compiler_is_one_clear_message(tools):
    """K28."""
    with pytest.raises(BuildError, match=r"no C\+\+ compiler: none of g\+\+.*MMCV_WITH_OPS=0"):
        toolchain.choose_toolchain(CPU_TORCH, {"PATH": "/nonexistent"})
    with pytest.raises(BuildError, match=r"C\+\+ compiler nope does not work: .*nope"):
        tools.choose(CPU_TORCH, CXX="nope")


def test_launcher_before_the_compiler_is_kept(tools):
    tools.add("ccache", 'exec "$@"')
    assert tools.choose(CPU_TORCH, CXX="ccache g++").cxx == ("ccache", "g++")


@pytest.mark.parametrize(
    ("variables", "archs"),
    [
        ({}, ("8.0", "9.0+PTX")),
        ({"TORCH_CUDA_ARCH_LIST": "8.6 9.0a;9.0a, 10.0+PTX"}, ("8.6", "9.0a", "10.0+PTX")),
    ],
)
def test_cuda_architectures_come_from_the_variable_or_a_default(tools, variables, archs):
    tools.add_nvcc()
    assert tools.choose(CUDA_TORCH, **variables).gpu.archs == archs


def test_cuda_architectures_come_from_the_gpus_present(tools):
    tools.add_nvcc()
    tools.add("nvidia-smi", "echo 10.0; echo 9.0; echo 9.0")
    assert tools.choose(CUDA_TORCH).gpu.archs == ("9.0", "10.0")


def test_unusable_architecture_is_named(tools):
    tools.add_nvcc()
    tools.add_hipcc()
    with pytest.raises(BuildError, match=r"TORCH_CUDA_ARCH_LIST must be .* got 'Hopper'"):
        tools.choose(CUDA_TORCH, TORCH_CUDA_ARCH_LIST="Hopper")
    with pytest.raises(BuildError, match=r"PYTORCH_ROCM_ARCH must be .* got '9\.0'"):
        tools.choose(ROCM_TORCH, PYTORCH_ROCM_ARCH="9.0")


def test_rocm_architectures_default_to_the_instinct_gpus(tools):
    tools.add_hipcc()
    gpu = tools.choose(ROCM_TORCH).gpu
    assert gpu.arch_flags == [f"--offload-arch={a}" for a in ("gfx90a", "gfx942", "gfx950")]
    one = tools.choose(ROCM_TORCH, PYTORCH_ROCM_ARCH="gfx90a:xnack-").gpu
    assert one.archs == ("gfx90a:xnack-",)


def test_intermediate_code_is_added_only_where_asked_for():
    gpu = toolchain.Gpu("cuda", "nvcc", "13.0", ("8.0", "9.0+PTX"))
    assert gpu.arch_flags == [
        "-gencode=arch=compute_80,code=sm_80",
        "-gencode=arch=compute_90,code=sm_90",
        "-gencode=arch=compute_90,code=compute_90",
    ]


# Compiling


@pytest.fixture
def small_build(tmp_path):
    """Sources that need nothing of torch, built with g++ and a script that plays hipcc."""
    if not (shutil.which("g++") and shutil.which("ninja")):
        pytest.skip("needs g++ and ninja")
    source, build = tmp_path / "source", tmp_path / "build"
    files = {
        "schema.cpp": "int schema() { return 0; }",
        "kernels/x.h": "inline int x() { return 1; }",
        "cpu/x.cpp": '#include "kernels/x.h"\nint cpu_x() { return x(); }',
        "cpu/y.cpp": "int cpu_y() { return 2; }",
        "gpu/x.cu": '#include "kernels/x.h"\nint gpu_x() { return x(); }',
    }
    for name, text in files.items():
        path = source / "csrc" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    drop = "-x|hip|--offload-arch=*|-munsafe-fp-atomics) ;;"
    keep = '*) set -- "$@" "$a";;'
    hipcc = make_program(
        tmp_path / "rocm/bin/hipcc",
        f'for a; do shift; case "$a" in {drop} {keep} esac; done; exec g++ -x c++ "$@"',
    )
    (tmp_path / "rocm/lib").mkdir()
    subprocess.run(
        ["g++", "-shared", "-x", "c++", "/dev/null", "-o", tmp_path / "rocm/lib/libamdhip64.so"],
        check=True,
    )
    gpu = toolchain.Gpu("hip", str(hipcc), "7.1.2", ("gfx942",))
    tools = toolchain.Toolchain(("g++",), "GCC", gpu, "")
    torch = Torch(make_torch(tmp_path / "torch", "2.12.0"), "2.12.0", None, "7.1")

    class Build:
        csrc = source / "csrc"

        def run(self) -> set[str]:
            """Builds; returns the objects and libraries that were made anew."""
            before = self._times()
            native.build_libraries(source, build, torch, tools)
            return {name for name, time in self._times().items() if before.get(name) != time}

        def _times(self) -> dict[str, int]:
            paths = [*build.glob("objects/**/*.o"), *build.glob("lib/*.so")]
            return {str(path.relative_to(build)): path.stat().st_mtime_ns for path in paths}

    return Build()


def test_touching_one_file_recompiles_one_file(small_build):
    objects = {"schema.o", "cpu/x.o", "cpu/y.o", "gpu/x.o"}
    libraries = {"lib/libmmcv_cpu.so", "lib/libmmcv_gpu.so"}
    assert small_build.run() == {f"objects/{name}" for name in objects} | libraries
    assert small_build.run() == set()
    (small_build.csrc / "cpu/y.cpp").write_text("int cpu_y() { return 3; }\n")
    assert small_build.run() == {"objects/cpu/y.o", "lib/libmmcv_cpu.so"}


def test_changed_header_recompiles_the_files_that_include_it(small_build):
    small_build.run()
    (small_build.csrc / "kernels/x.h").write_text("inline int x() { return 4; }\n")
    assert small_build.run() == {
        "objects/cpu/x.o",
        "objects/gpu/x.o",
        "lib/libmmcv_cpu.so",
        "lib/libmmcv_gpu.so",
    }


def test_build_writes_nothing_into_the_sources(small_build):
    """K31: files of one base name give distinct objects; the second build has nothing to do."""
    before = sorted(small_build.csrc.parent.rglob("*"))
    small_build.run()
    assert sorted(small_build.csrc.parent.rglob("*")) == before
    assert small_build.run() == set()


def test_build_folder_is_in_the_cache_when_the_sources_cannot_be_written(tmp_path, monkeypatch):
    """K31."""
    monkeypatch.delenv("MMCV_BUILD_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "file").touch()
    monkeypatch.setattr(backend, "SOURCE", tmp_path / "file")  # a place where mkdir fails
    assert backend._build_folder.__wrapped__().is_relative_to(tmp_path / "cache")


def test_source_that_does_not_compile_ends_with_one_message(small_build, capfd):
    (small_build.csrc / "cpu/y.cpp").write_text("int cpu_y() { return nonsense; }\n")
    with pytest.raises(BuildError, match="did not compile"):
        small_build.run()
    assert re.search("nonsense.* was not declared", capfd.readouterr().out)


def test_libraries_depend_on_torch_by_name_only(small_build, tmp_path):
    small_build.run()
    for name in ("cpu", "gpu"):
        library = tmp_path / f"build/lib/libmmcv_{name}.so"
        dynamic = subprocess.run(
            ["readelf", "-d", library], capture_output=True, text=True, check=True
        ).stdout
        needed = re.findall(r"NEEDED.*\[(.+)\]", dynamic)
        assert {"libtorch.so", "libtorch_cpu.so"} <= set(needed)
        assert "RPATH" not in dynamic and "RUNPATH" not in dynamic


def test_missing_ninja_is_one_clear_message(tmp_path):
    tools = toolchain.Toolchain(("g++",), "GCC", None, "")
    with pytest.raises(BuildError, match="no ninja in PATH: pip install ninja"):
        native.build_libraries(tmp_path, tmp_path, CPU_TORCH, tools, {"PATH": "/nonexistent"})


# Upstream's release


def test_upstream_wheel_with_other_content_is_refused(tmp_path):
    wheel = tmp_path / upstream.FILE_NAME
    wheel.write_bytes(b"something else")
    with pytest.raises(BuildError, match=r"is not upstream's .*expected 1d9913c3"):
        upstream.upstream_wheel(tmp_path, {"MMCV_LITE_WHEEL": str(wheel)})
    with pytest.raises(BuildError, match=r"got /nowhere\.whl, which does not exist"):
        upstream.upstream_wheel(tmp_path, {"MMCV_LITE_WHEEL": "/nowhere.whl"})


def test_failing_download_names_the_way_out(tmp_path, monkeypatch):
    python = make_program(tmp_path / "python", "echo 'ERROR: No matching distribution' >&2; exit 1")
    monkeypatch.setattr(upstream.sys, "executable", str(python))
    message = r"could not download mmcv-lite==2\.1\.0: ERROR: No matching .*MMCV_LITE_WHEEL"
    with pytest.raises(BuildError, match=message):
        upstream.upstream_wheel(tmp_path / "cache", dict(os.environ))


# Whole wheels


@pytest.fixture
def pure_wheel(tmp_path, monkeypatch):
    monkeypatch.setenv("MMCV_WITH_OPS", "0")
    return tmp_path / backend.build_wheel(str(tmp_path))


def test_wheel_without_ops_is_pure_python(pure_wheel):
    assert re.fullmatch(r"mmcv-2\.1\.0\+rocm\d+-py3-none-any\.whl", pure_wheel.name)
    names = zipfile.ZipFile(pure_wheel).namelist()
    assert not [name for name in names if name.endswith(".so")]
    assert {"mmcv/_ext.py", "mmcv/ops/surface.py", "mmcv/cnn/bricks/transformer.py"} <= set(names)


def test_wheel_lays_our_files_over_upstreams(pure_wheel):
    archive = zipfile.ZipFile(pure_wheel)
    theirs = dict(upstream.upstream_files(upstream.upstream_wheel(backend._build_folder())))
    assert archive.read("mmcv/cnn/resnet.py") == theirs["mmcv/cnn/resnet.py"]
    assert archive.read("mmcv/version.py") == (MMCV / "mmcv/version.py").read_bytes()
    ops = {name for name in archive.namelist() if name.startswith("mmcv/ops/")}
    ours = {str(path.relative_to(MMCV)) for path in (MMCV / "mmcv/ops").rglob("*.py")}
    assert ops == ours, "nothing of upstream's ops may be in the wheel"


def test_wheel_metadata_and_record_are_right(pure_wheel):
    archive = zipfile.ZipFile(pure_wheel)
    info = next(name for name in archive.namelist() if name.endswith("/RECORD")).split("/")[0]
    text = archive.read(f"{info}/METADATA").decode()
    requires = re.findall(r"^Requires-Dist: ([\w-]+)", text, re.MULTILINE)
    assert "opencv-python-headless" in requires and "mmengine" in requires
    assert "torch" not in requires and "opencv-python" not in requires
    assert b"OpenMMLab" in archive.read(f"{info}/licenses/mmcv-lite/LICENSE")
    assert b"Apache License" in archive.read(f"{info}/licenses/LICENSE")
    lines = archive.read(f"{info}/RECORD").decode().splitlines()
    assert {line.split(",")[0] for line in lines} == set(archive.namelist())
    for line in lines[:-1]:
        name, digest, size = line.rsplit(",", 2)
        data = archive.read(name)
        expected = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        assert (digest, int(size)) == (f"sha256={expected}", len(data))


def test_same_sources_give_the_same_wheel(pure_wheel, tmp_path):
    again = tmp_path / "again"
    again.mkdir()
    assert (again / backend.build_wheel(str(again))).read_bytes() == pure_wheel.read_bytes()


def test_first_use_of_an_op_without_compiled_ops_is_one_line(pure_wheel, tmp_path):
    """K28: importing works, the check command fails, and using an op says what to do."""
    zipfile.ZipFile(pure_wheel).extractall(tmp_path / "site")
    env = {**os.environ, "PYTHONPATH": str(tmp_path / "site")}

    def python(*options: str) -> subprocess.CompletedProcess:
        command = [sys.executable, *options]
        return subprocess.run(command, env=env, capture_output=True, text=True, check=False)

    use = "import mmcv; from mmcv.ops import library\nlibrary.ops.nms(1, 2)"
    last = python("-c", use).stderr.splitlines()[-1]
    assert last.startswith("RuntimeError: nms: mmcv.ops was built without compiled ops; ")
    assert last.endswith("MMCV_WITH_OPS=1 pip install --force-reinstall --no-deps ./mmcv")
    check = python("-m", "mmcv.ops")
    assert check.returncode == 1 and check.stdout.strip() in last


def test_editable_install_points_to_the_sources(tmp_path, monkeypatch):
    monkeypatch.setenv("MMCV_WITH_OPS", "0")
    monkeypatch.setenv("MMCV_LITE_WHEEL", str(upstream.upstream_wheel(backend._build_folder())))
    monkeypatch.setattr(backend, "_build_folder", lambda: tmp_path / "build")
    wheel = zipfile.ZipFile(tmp_path / backend.build_editable(str(tmp_path)))
    stage = Path(wheel.read("mmcv_editable.pth").decode().strip())
    assert (stage / "mmcv/version.py").resolve() == MMCV / "mmcv/version.py"
    assert (stage / "mmcv/cnn/resnet.py").is_file()


def test_unknown_value_of_with_ops_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("MMCV_WITH_OPS", "yes")
    with pytest.raises(SystemExit, match="MMCV_WITH_OPS must be 0 or 1, got 'yes'"):
        backend.build_wheel(str(tmp_path))


def test_problem_is_shown_without_a_traceback(tmp_path):
    code = "import build_backend; build_backend.build_wheel('.')"
    result = subprocess.run(
        [sys.executable, "-c", code],
        cwd=MMCV,
        env={**os.environ, "MMCV_TORCH_DIR": str(tmp_path), "MMCV_WITH_OPS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 1
    assert result.stderr.startswith("error: mmcv: MMCV_TORCH_DIR must be the folder of torch")
    assert "Traceback" not in result.stderr and len(result.stderr.splitlines()) == 1


def test_source_archive_holds_what_a_build_needs(tmp_path):
    import tarfile

    name = backend.build_sdist(str(tmp_path))
    names = {member.name.split("/", 1)[1] for member in tarfile.open(tmp_path / name)}
    needed = {"pyproject.toml", "PKG-INFO", "LICENSE", "build_backend/native.py", "mmcv/_ext.py"}
    assert needed <= names and "csrc/schema.cpp" in names


PROBE = {
    "schema.cpp": """
#include <torch/csrc/stable/library.h>
STABLE_TORCH_LIBRARY(mmcv, m) { m.def("probe(Tensor x) -> Tensor"); }
""",
    "cpu/probe.cpp": """
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>
using torch::stable::Tensor;
static Tensor probe(Tensor x) {
  Tensor y = torch::stable::empty_like(x);
  auto from = static_cast<const float*>(x.const_data_ptr());
  auto to = static_cast<float*>(y.mutable_data_ptr());
  for (int64_t i = 0; i < x.numel(); ++i) to[i] = 2 * from[i];
  return y;
}
STABLE_TORCH_LIBRARY_IMPL(mmcv, CPU, m) { m.impl("probe", TORCH_BOX(&probe)); }
""",
}


@pytest.mark.slow
def test_pip_builds_installs_and_rebuilds_only_what_changed(tmp_path):
    """K27: pip with its default build isolation, again after touching one file, and without."""
    import torch

    source, site = tmp_path / "mmcv", tmp_path / "site"
    shutil.copytree(MMCV, source, ignore=shutil.ignore_patterns("build", "csrc", "__pycache__"))
    for name, text in PROBE.items():
        (source / "csrc" / name).parent.mkdir(parents=True, exist_ok=True)
        (source / "csrc" / name).write_text(text)
    for module in (MMCV / "mmcv/ops").glob("*.py"):  # ops that the small csrc does not have
        if module.stem not in ("__init__", "__main__", "info", "library", "surface"):
            (source / "mmcv/ops" / module.name).unlink()

    def pip(*options: str) -> str:
        command = [sys.executable, "-m", "pip", "install", "-v", "--no-deps", "--target", str(site)]
        env = {**os.environ, "MMCV_GPU": "none", "MMCV_WITH_OPS": "1"}
        done = subprocess.run(
            [*command, *options], env=env, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    def installed(code: str) -> str:
        env = {**os.environ, "PYTHONPATH": str(site)}
        code = f"import torch; from mmcv.ops import library; {code}"
        return subprocess.run(
            [sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True
        ).stdout

    first = pip(str(source))
    assert "mmcv: no GPU library: MMCV_GPU=none" in first
    assert len(re.findall(r"\] compile ", first)) == 2
    assert installed("print(torch.ops.mmcv.probe(torch.ones(1)).item())") == "2.0\n"
    assert f"with torch {torch.__version__}" in installed("print(library.summary())")
    assert "CPU only" in installed("print(library.gpu_problem())")

    assert "no work to do" in pip("--upgrade", str(source))
    kernel = source / "csrc/cpu/probe.cpp"
    kernel.write_text(kernel.read_text().replace("= 2 *", "= 3 *"))
    again = pip("--upgrade", str(source))
    assert re.findall(r"\] compile (\S+)", again) == [str(kernel)]
    # Another environment may have another ninja, which may start anew: it must build all the same.
    pip("--upgrade", "--no-build-isolation", str(source))
    assert installed("print(torch.ops.mmcv.probe(torch.ones(1)).item())") == "3.0\n"
