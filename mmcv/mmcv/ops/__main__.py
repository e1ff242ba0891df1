"""`python -m mmcv.ops`: says what was built; exits with 1 if it cannot run here."""

import sys

import torch

from . import library


def main() -> int:
    problem = library.CPU_PROBLEM or (library.gpu_problem() if torch.cuda.is_available() else "")
    print(problem or f"mmcv.ops was built {library.summary()}")
    return 1 if problem else 0


sys.exit(main())
