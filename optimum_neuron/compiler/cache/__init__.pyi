from . import build as build, report as report
from .addresses import HubStorage as HubStorage, open_storage as open_storage, url_of as url_of
from .entries import Entry as Entry, Marker as Marker
from .explain import (
    Difference as Difference,
    describe as describe,
    differences as differences,
    nearest_entries as nearest_entries,
    summary as summary,
)
from .keys import entry_key as entry_key, entry_name as entry_name
from .listing import Recorded as Recorded
from .locks import claim as claim
from .requests import parse as parse
from .shared import (
    DEFAULT_NAME as DEFAULT_NAME,
    FILE as FILE,
    choose as choose,
    create as create,
    shared_url as shared_url,
    using as using,
)
from .store import CacheResult as CacheResult, CompileCache as CompileCache
