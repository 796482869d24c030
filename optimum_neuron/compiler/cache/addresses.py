"""Storage that an address names: a folder, an fsspec URL, or a repository of the Hugging Face Hub.

It opens places and reads nothing in them.

    >>> from optimum_neuron.compiler.cache.addresses import url_of
    >>> url_of("my-org/my-cache"), url_of("./neffs"), url_of("s3://bucket/neffs")
    ('hf://my-org/my-cache', './neffs', 's3://bucket/neffs')
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from ...errors import CacheError, ConfigError
from .storage import LocalStorage, RemoteStorage

HUB = "hf://"
_REPOSITORY = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")


class HubStorage(RemoteStorage):
    """A repository of the Hub: files that are uploaded together are one commit."""

    def upload_all(self, files: Mapping[str, Path]) -> None:
        """Copy files of this machine in one commit."""
        from huggingface_hub import CommitOperationAdd, HfApi

        operations = [CommitOperationAdd(path_in_repo=path, path_or_fileobj=source) for path, source in files.items()]
        with self._errors(f"upload {len(operations)} files"):
            HfApi().create_commit(
                self.url.removeprefix(HUB), operations, commit_message=f"Add {len(operations)} files of compiled models"
            )


def url_of(name: str) -> str:
    """Return the address of a cache that is written as Optimum Neuron does: `org/name` is a repository of the Hub.

    A folder starts with `/`, `.`, or `~`; everything with `://` is an address already.
    """
    if name.startswith(("/", ".", "~")) or ("://" in name and not name.startswith(HUB)):
        return name
    repository = name.removeprefix(HUB)
    if _REPOSITORY.fullmatch(repository):
        return HUB + repository
    example = f"my-org/{name.strip('/').rpartition('/')[2] or 'neuron-cache'}"
    message = f"The compile cache {name!r} is no Hub repository (org/name), folder (/, . or ~ first), or URL (://)."
    raise ConfigError(message, hint=f"Pass, for example, {example} or ./{name}.", cache=name)


def open_storage(url: str) -> LocalStorage | RemoteStorage:
    """Open a folder ("/neffs", "~/neffs", "file:///neffs") or an fsspec URL ("s3://bucket/neffs", "hf://org/name")."""
    scheme, separator, rest = url.partition("://")
    if not separator:
        return LocalStorage(Path(url).expanduser().absolute())
    if scheme in ("file", "local"):
        return LocalStorage(Path(rest).expanduser().absolute(), url)
    return open_remote(url)


def open_remote(url: str) -> RemoteStorage:
    """Open any place through fsspec; a folder too, which is not locked then."""
    import fsspec

    scheme, separator, _ = url.partition("://")
    address = url if separator else f"file://{Path(url).expanduser().absolute()}"
    try:
        fs, root = fsspec.core.url_to_fs(address)
    except Exception as error:  # a backend may also fail on its own while it connects
        message = f"The compile cache {url} cannot be opened: {type(error).__name__}: {error}."
        hint = "Install fsspec's package for the protocol (s3:// needs `pip install s3fs`), or correct the address."
        raise CacheError(message, hint=hint, cache=url) from error
    return (HubStorage if scheme == "hf" else RemoteStorage)(fs, root, url)
