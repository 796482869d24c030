from . import load as load
from .load import (
    Artifact as Artifact,
    BoundProgram as BoundProgram,
    core_count as core_count,
    open_artifact as open_artifact,
    read_artifact as read_artifact,
)
