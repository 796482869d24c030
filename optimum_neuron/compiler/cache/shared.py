"""The cache that a user shares with others: which one it is, and how it is chosen and made.

A compile looks into it after the cache of this machine, and writes nothing there: `synchronize` does. It is a
repository of the Hub, an fsspec URL or a folder. `using` chooses it for a block, CUSTOM_CACHE_REPO for a process, and
`choose` for a user, in a file below HF_HOME that Optimum Neuron has too.

    >>> from optimum_neuron.compiler.cache.shared import shared_url, using
    >>> with using("memory://team"):
    ...     shared_url().value
    'memory://team'
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING

from ...base import env
from ...base.core import Choice
from ...errors import CacheError
from ...files.atomic import write_bytes
from .storage import HUB, LocalStorage, open_storage, url_of

if TYPE_CHECKING:
    from huggingface_hub import HfApi

FILE = "optimum_neuron_custom_cache"
"""Name of the file below HF_HOME."""
DEFAULT_NAME = "optimum-neuron-cache"
"""Repository that `create` makes where no name is given."""

_used: ContextVar[str | None] = ContextVar("shared compile cache", default=None)


def shared_url() -> Choice[str | None]:
    """Return the address of the shared cache, or None, and who chose it.

    Raises:
        ConfigError: the name that was chosen is no address.
    """
    file = env.hf_home() / FILE
    if (used := _used.get()) is not None:
        return Choice(value=used, reason="named by the caller")
    if (named := env.custom_cache_repo()) is not None:
        return Choice(value=url_of(named), reason="CUSTOM_CACHE_REPO")
    try:
        chosen = file.read_text(encoding="utf-8").strip()
    except (FileNotFoundError, NotADirectoryError):
        chosen = ""
    if chosen:
        return Choice(value=url_of(chosen), reason=f"chosen in {file}")
    return Choice(value=None, reason="no shared cache was chosen")


@contextlib.contextmanager
def using(name: str) -> Iterator[str]:
    """Share another cache inside a block.

    Args:
        name: repository, URL or folder.
    """
    url = url_of(name)
    token = _used.set(url)
    try:
        yield url
    finally:
        _used.reset(token)


def choose(name: str) -> str:
    """Choose the shared cache of this user, and return its address.

    Args:
        name: repository, URL or folder; it must exist.

    Raises:
        CacheError: it does not exist, or cannot be reached.
    """
    url = _absolute(url_of(name))
    if url.startswith(HUB):
        repository = url.removeprefix(HUB)
        with _hub_api(repository) as api:
            api.repo_info(repository)
    storage = open_storage(url)
    if isinstance(storage, LocalStorage) and not storage.root.is_dir():
        message = f"The shared compile cache {name} does not exist (no folder {storage.root})."
        raise CacheError(message, hint=f"Run `optimum-cli neuron cache create -n {name}`.", cache=name)
    storage.size_bytes(FILE)  # reaches the place
    file = env.hf_home() / FILE
    file.parent.mkdir(parents=True, exist_ok=True)
    write_bytes(file, f"{url.removeprefix(HUB)}\n".encode(), error=CacheError)
    return url


def create(name: str | None = None, *, public: bool = False) -> str:
    """Make a cache, choose it, and return its address.

    Args:
        name: repository, URL or folder; a repository without `org/` is of the user who is logged in. By default
            `DEFAULT_NAME`.
        public: let everyone read a new repository of the Hub.

    Raises:
        CacheError: it cannot be made.
    """
    name = name or DEFAULT_NAME
    if "/" in name.removeprefix(HUB) and not (url := _absolute(url_of(name))).startswith(HUB):
        storage = open_storage(url)
        if isinstance(storage, LocalStorage):
            storage.root.mkdir(parents=True, exist_ok=True)
    else:
        repository = name.removeprefix(HUB)
        with _hub_api(repository) as api:
            url = HUB + api.create_repo(repository, private=not public, exist_ok=True).repo_id
    return choose(url)


def _absolute(url: str) -> str:
    return url if "://" in url else str(Path(url).expanduser().absolute())


@contextlib.contextmanager
def _hub_api(name: str) -> Iterator[HfApi]:
    """The Hub's interface for calls about one repository."""
    from huggingface_hub import HfApi

    try:
        yield HfApi()
    # An unreachable Hub raises an exception of huggingface_hub's HTTP library, which differs between versions.
    except Exception as error:
        reason = f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"
        message = f"The Hub repository {name} cannot be used as a shared cache ({reason})."
        hint = "Check the name, log in with `hf auth login`, or make it with `optimum-cli neuron cache create`."
        raise CacheError(message, hint=hint, cache=name) from error
