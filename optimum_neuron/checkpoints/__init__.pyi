from . import catalogue as catalogue, folder as folder, package as package
from .catalogue import (
    CHECKPOINTS as CHECKPOINTS,
    DATASETS as DATASETS,
    entries as entries,
    find as find,
    get as get,
    names as names,
)
from .convert import convert as convert
from .download import download as download, tool_error as tool_error
from .entry import Checkpoint as Checkpoint, Dataset as Dataset, Entry as Entry
from .fetch import fetch as fetch, is_fetched as is_fetched, read_rows as read_rows, resolve_model as resolve_model
from .folder import MARKER as MARKER, damaged_files as damaged_files, seal as seal
from .package import verify as verify
