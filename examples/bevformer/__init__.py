"""BEVFormer v1 (arXiv 2203.17270): 3D detection from six cameras with a BEV memory."""

from .head import BEVFormerHead
from .model import BEVFormer

__all__ = ["BEVFormer", "BEVFormerHead"]
