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
from .download import download as download
from .entry import Checkpoint as Checkpoint, Dataset as Dataset
from .fetch import fetch as fetch, is_fetched as is_fetched, read_rows as read_rows, resolve_model as resolve_model
