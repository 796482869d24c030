from .application import app as app
from .config import (
    FleetConfig as FleetConfig,
    ReplicaGroup as ReplicaGroup,
    group_of as group_of,
    parse_fleet as parse_fleet,
    read_fleet as read_fleet,
)
from .run import serve_on_ray as serve_on_ray
