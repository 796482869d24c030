from . import (
    device as device,
    graphs as graphs,
    library as library,
    metrics as metrics,
)
from .device import enable as enable, is_enabled as is_enabled
from .graphs import (
    Region as Region,
    allow_execution as allow_execution,
    execution_allowed as execution_allowed,
    sync as sync,
)
