from . import (
    collectives as collectives,
    device as device,
    gradients as gradients,
    graphs as graphs,
    library as library,
    metrics as metrics,
    nested as nested,
    ordinals as ordinals,
    rendezvous as rendezvous,
    spawning as spawning,
    zero as zero,
)
from .device import enable as enable, is_enabled as is_enabled
from .graphs import (
    Region as Region,
    allow_execution as allow_execution,
    execution_allowed as execution_allowed,
    sync as sync,
)
