from . import build as build, report as report
from .explain import Difference as Difference
from .listing import Recorded as Recorded
from .requests import entry_name as entry_name
from .shared import FILE as FILE, choose as choose, create as create, shared_url as shared_url, using as using
from .storage import url_of as url_of
from .store import (
    CacheResult as CacheResult,
    CompileCache as CompileCache,
    kept_in as kept_in,
    open_cache as open_cache,
)
