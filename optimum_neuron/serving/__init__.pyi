from .answers import Call as Call
from .deployment import Deployment as Deployment
from .metrics import Metrics as Metrics
from .options import (
    ModelSpec as ModelSpec,
    ServeOptions as ServeOptions,
    model_specs as model_specs,
    require_packages as require_packages,
)
from .server import running_server as running_server, serve as serve
