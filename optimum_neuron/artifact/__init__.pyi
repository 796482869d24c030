from . import load as load
from .core_count import core_count as core_count
from .load import (
    Artifact as Artifact,
    BoundProgram as BoundProgram,
    open_artifact as open_artifact,
    read_artifact as read_artifact,
)
