"""What some architectures do in `forward` that no static graph can, and what is done instead while they are traced.

A patch may change the arguments of the model and, for the duration of a call, its modules; the model is the same
afterwards. Each comes with its reason, which the export reports.
"""

from __future__ import annotations

from .audio import DEPTHWISE, GROUP_NORM, POSITIONS, XVECTOR
from .base import Arguments, Patch
from .text import BIAS_CACHE, CONVOLUTION, LENGTHS, TRIGRAM

__all__ = [
    "BIAS_CACHE",
    "CONVOLUTION",
    "DEPTHWISE",
    "GROUP_NORM",
    "LENGTHS",
    "POSITIONS",
    "TRIGRAM",
    "XVECTOR",
    "Arguments",
    "Patch",
]
