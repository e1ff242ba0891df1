"""Operators for detection and 3D perception on CPU, CUDA and ROCm.

One module per op. `surface.TABLE` lists every name that users import; those without an
implementation raise an error that says so when they are called. `python -m mmcv.ops` tells what was
built.
"""

from . import surface

_exported, _implemented = surface.load(__name__)
globals().update(_exported)
__all__ = sorted(_exported)
