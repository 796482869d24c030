from . import autocast as autocast
from .autocast import (
    auto_cast as auto_cast,
)
from .bodies import merge as merge, rewrite_bodies as rewrite_bodies, verify as verify
from .exchanges import cut_at_exchanges as cut_at_exchanges
from .outline import outline as outline, return_layers as return_layers
from .stages import (
    divide_into_stages as divide_into_stages,
    stage_programs as stage_programs,
    without_sends as without_sends,
)
from .stretch import NotUniformError as NotUniformError, stretch as stretch
from .unroll import unroll as unroll
