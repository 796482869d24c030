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

from ... import env
from ...atomic import write_bytes
from ...core import Choice
from ...errors import CacheError
from .addresses import HUB, open_storage, url_of
from .storage import LocalStorage

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
        _require_repository(url.removeprefix(HUB))
    storage = open_storage(url)
    if isinstance(storage, LocalStorage) and not storage.root.is_dir():
        raise CacheError(
            f"The shared compile cache {name} does not exist (no folder {storage.root}).",
            hint=f"Run `optimum-cli neuron cache create -n {name}`.",
            cache=name,
        )
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
        url = HUB + _create_repository(name.removeprefix(HUB), public)
    return choose(url)


def _absolute(url: str) -> str:
    return url if "://" in url else str(Path(url).expanduser().absolute())


def _create_repository(name: str, public: bool) -> str:
    from huggingface_hub import HfApi

    with _hub_errors(name):
        return str(HfApi().create_repo(name, private=not public, exist_ok=True).repo_id)


def _require_repository(name: str) -> None:
    from huggingface_hub import HfApi

    with _hub_errors(name):
        HfApi().repo_info(name)


@contextlib.contextmanager
def _hub_errors(name: str) -> Iterator[None]:
    try:
        yield
    # An unreachable Hub raises an exception of huggingface_hub's HTTP library, which differs between versions.
    except Exception as error:
        reason = f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"
        raise CacheError(
            f"The Hub repository {name} cannot be used as a shared cache ({reason}).",
            hint="Check the name, log in with `hf auth login`, or make it with `optimum-cli neuron cache create`.",
            cache=name,
        ) from error
