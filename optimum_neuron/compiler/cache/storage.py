"""Storage of a cache: a local folder, or any fsspec URL (s3://, memory://, zip:// ...).

Both kinds offer the same few operations on relative paths with forward slashes, and know nothing of entries or keys.
Every failure becomes a `CacheError`; a missing file is None. `open_storage` opens the place that an address names, and
reads nothing in it; a repository of the Hugging Face Hub is one too.

    >>> from optimum_neuron.compiler.cache.storage import url_of
    >>> url_of("my-org/my-cache"), url_of("./neffs"), url_of("s3://bucket/neffs")
    ('hf://my-org/my-cache', './neffs', 's3://bucket/neffs')
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from ...base import env
from ...errors import CacheError, ConfigError
from ...files.atomic import write_bytes

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem

LOCKS_FOLDER = "locks"
_REMOTE_HINT = (
    "Check its address and your credentials, or choose another cache with NEURON_COMPILE_CACHE_URL or "
    "`optimum-cli neuron cache set`."
)


class LocalStorage:
    """A folder of this machine, or one that it mounts."""

    def __init__(self, root: Path, url: str | None = None) -> None:
        self.root = root
        self.url = url or str(root)

    def read(self, path: str) -> bytes | None:
        """Content of a small file, or None."""
        with self._errors(path):
            try:
                with open(f"{self.root}/{path}", "rb") as file:
                    return file.read()
            except (FileNotFoundError, NotADirectoryError):
                return None

    def read_many(self, paths: Iterable[str]) -> dict[str, bytes]:
        """Contents of small files; missing ones are left out."""
        return {path: data for path in paths if (data := self.read(path)) is not None}

    def size_bytes(self, path: str) -> int | None:
        """Size of a file, or None."""
        return None if (stat := self._stat(path)) is None else stat.st_size

    def files(self) -> dict[str, int]:
        """Size of every file, locks excepted."""
        sizes: dict[str, int] = {}
        for folder, subfolders, names in os.walk(self.root, onerror=self._refuse_unreadable):
            inside = os.path.relpath(folder, self.root).replace(os.sep, "/")
            if inside == "." and LOCKS_FOLDER in subfolders:
                subfolders.remove(LOCKS_FOLDER)
            for name in names:
                path = name if inside == "." else f"{inside}/{name}"
                if (size := self.size_bytes(path)) is not None:
                    sizes[path] = size
        return sizes

    def modified_unix_s(self, path: str) -> float | None:
        """When a file was last written, or None where the storage does not tell."""
        return None if (stat := self._stat(path)) is None else stat.st_mtime

    def write(self, path: str, data: bytes) -> None:
        """Write a small file; readers see the old or the new one."""
        target = self.root / path
        with self._errors(path):
            env.make_home()
            target.parent.mkdir(parents=True, exist_ok=True)
        write_bytes(target, data, error=CacheError)

    def _stat(self, path: str) -> os.stat_result | None:
        with self._errors(path):
            try:
                return os.stat(f"{self.root}/{path}")
            except (FileNotFoundError, NotADirectoryError):
                return None

    def _refuse_unreadable(self, error: OSError) -> None:
        # Another process may remove a folder at any time, but a folder without permission must not look empty.
        if not isinstance(error, FileNotFoundError):
            with self._errors(str(error.filename)):
                raise error

    def remove(self, path: str) -> None:
        """Remove a file, or a folder with its marker first."""
        target = self.root / path
        with self._errors(path):
            if target.is_dir():
                (target / "model.done").unlink(missing_ok=True)
                shutil.rmtree(target)
            else:
                target.unlink(missing_ok=True)

    @contextlib.contextmanager
    def _errors(self, path: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            message = f"{path} of the compile cache {self.url} cannot be used: {error}."
            raise CacheError(message, hint="Check its permissions.", cache=self.url) from error


class RemoteStorage:
    """A place behind fsspec; every call asks the server, nothing is remembered."""

    def __init__(self, fs: AbstractFileSystem, root: str, url: str) -> None:
        self.url = url
        self._fs = fs
        self._root = root.rstrip("/")

    def read(self, path: str) -> bytes | None:
        with self._errors(f"read {path}"):
            try:
                return bytes(self._fs.cat_file(self._at(path)))
            except (FileNotFoundError, KeyError):  # KeyError: zip:// of older fsspec
                return None

    def read_many(self, paths: Iterable[str]) -> dict[str, bytes]:
        places = {self._at(path): path for path in paths}
        if not places:
            return {}
        with self._errors("read entries"):
            contents = self._fs.cat(list(places), on_error="omit")
        return {path: bytes(contents[place]) for place, path in places.items() if place in contents}

    def size_bytes(self, path: str) -> int | None:
        with self._errors(f"look at {path}"):
            self._fs.invalidate_cache()
            try:
                return int(self._fs.info(self._at(path))["size"])
            except FileNotFoundError:
                return None

    def files(self) -> dict[str, int]:
        with self._errors("list entries"):
            self._fs.invalidate_cache()
            try:
                infos = self._fs.find(self._root, detail=True)
            except FileNotFoundError:
                return {}
        return {place[len(self._root) :].lstrip("/"): int(info["size"]) for place, info in infos.items()}

    def modified_unix_s(self, path: str) -> float | None:
        with self._errors(f"look at {path}"):
            try:
                return float(self._fs.modified(self._at(path)).timestamp())
            except (FileNotFoundError, NotImplementedError):
                return None

    def write(self, path: str, data: bytes) -> None:
        with self._errors(f"write {path}"):
            self._fs.pipe_file(self._made(path), data)

    def remove(self, path: str) -> None:
        with self._errors(f"remove {path}"):
            for place in (self._at(f"{path}/model.done"), self._at(path)):
                if self._fs.exists(place):
                    self._fs.rm(place, recursive=True)

    def download(self, path: str, to: Path) -> None:
        """Copy a file to this machine."""
        with self._errors(f"download {path}"):
            self._fs.get_file(self._at(path), str(to))

    def upload_all(self, files: Mapping[str, Path]) -> None:
        """Copy files of this machine, in their order, to the paths that are their keys."""
        for path, source in files.items():
            with self._errors(f"upload {path}"):
                self._fs.put_file(str(source), self._made(path))

    def _at(self, path: str) -> str:
        return f"{self._root}/{path}"

    def _made(self, path: str) -> str:
        """Path of a file, in an existing folder."""
        self._fs.makedirs(self._at(path).rpartition("/")[0], exist_ok=True)
        return self._at(path)

    @contextlib.contextmanager
    def _errors(self, action: str) -> Iterator[None]:
        try:
            yield
        # Each fsspec backend raises its own library's exceptions; their only common base is Exception.
        except Exception as error:
            message = f"Cannot {action} in the compile cache {self.url}: {type(error).__name__}: {error}."
            raise CacheError(message, hint=_REMOTE_HINT, cache=self.url) from error


Storage = LocalStorage | RemoteStorage


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
