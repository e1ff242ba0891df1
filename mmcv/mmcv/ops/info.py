"""What the compiled ops were built with; shown by `mmcv.utils.collect_env`."""

from . import library

__all__ = ["get_compiler_version", "get_compiling_cuda_version"]


def get_compiler_version() -> str:
    """The C++ compiler of the CPU library, "GCC 12.2.0"; "not available" if mmcv has no ops."""
    return library.INFO.get("compiler", "not available")


def get_compiling_cuda_version() -> str:
    """The CUDA or HIP release of the GPU library, "13.0"; "not available" if there is none."""
    gpu = library.INFO.get("gpu")
    return gpu["version"] if gpu else "not available"
