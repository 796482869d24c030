from .audio import (
    DEPTHWISE as DEPTHWISE,
    GROUP_NORM as GROUP_NORM,
    POSITIONS as POSITIONS,
    XVECTOR as XVECTOR,
    masked_norm as masked_norm,
)
from .base import Arguments as Arguments, Patch as Patch
from .text import (
    BIAS_CACHE as BIAS_CACHE,
    CONVOLUTION as CONVOLUTION,
    COORDINATES as COORDINATES,
    LAST_END as LAST_END,
    LENGTHS as LENGTHS,
    TRIGRAM as TRIGRAM,
)
