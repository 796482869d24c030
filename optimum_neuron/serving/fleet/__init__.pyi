from .application import app as app, build_application as build_application
from .config import (
    FleetConfig as FleetConfig,
    ReplicaGroup as ReplicaGroup,
    group_of as group_of,
    parse_fleet as parse_fleet,
    read_fleet as read_fleet,
)
from .ingress import Fleet as Fleet
from .metrics import FleetMetrics as FleetMetrics
from .run import connect as connect, serve_on_ray as serve_on_ray
