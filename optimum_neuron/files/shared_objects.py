"""Shared objects in the user's cache: written so that a power cut leaves no broken file, checked before loading.

A record, a small JSON file, names a library, its hash, and perhaps a function in it; one library can have several. A
library whose bytes have another hash is removed with its record and built again. A loaded library runs as the user, so
files and folders that others own or may write are not loaded from. In place of a folder that cannot be written, new
libraries go to a private one (`atomic.py`).

    record = writable(folder / "sub_1.json")
    publish(built, record.with_name("host.so"), {record: "sub_1"})
    shared = find(folder / "sub_1.json")      # None: absent, or damaged and removed
    require_ours(shared.library); ctypes.CDLL(shared.library)
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import logging
import os
import platform
import stat
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from ..base import env
from ..errors import LoweringError
from .atomic import can_write, private_folder, replacing, write_bytes
from .plain_json import parse_json

logger = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True, kw_only=True)
class SharedObject:
    """A library that is there and whole."""

    library: Path
    function: str
    """The function of the record; empty: the whole library."""


def make_folder(folder: Path) -> None:
    """Make a folder, and missing parents, that only this user may enter."""
    for missing in reversed([path for path in (folder, *folder.parents) if not path.exists()]):
        missing.mkdir(mode=0o700, exist_ok=True)


def publish(built: Path, library: Path, records: Mapping[Path, str]) -> None:
    """Write a library durably, and then the records that point to it.

    Args:
        records: JSON files to write in the same folder, each with its function.
    """
    data = built.read_bytes()
    make_folder(library.parent)
    with replacing(library, needed_bytes=len(data), error=LoweringError) as file:
        file.write(data)
        os.fchmod(file.fileno(), 0o700)
    digest = hashlib.sha256(data).hexdigest()
    for record, function in records.items():
        fields = {"library": library.name, "sha256": digest, "function": function}
        write_bytes(record, json.dumps(fields).encode(), error=LoweringError)


def writable(record: Path) -> Path:
    """Return where a record can be written: in its place, or in a private folder if its own cannot be written."""
    if can_write(record.parent):
        return record
    private = _private(record)
    _warn(record.parent, private.parent)
    return private


def _private(record: Path) -> Path:
    return private_folder(record.parent.absolute()) / record.name


@functools.cache
def _warn(folder: Path, private: Path) -> None:
    hint = "Set OPTIMUM_NEURON_HOME to a folder that you may write."
    logger.warning("Cannot write %s, so compiled host code is kept in %s. %s", folder, private, hint)


def find(record: Path) -> SharedObject | None:
    """Return the library that a record names, after comparing its hash; remove both where they are damaged."""
    shared_object = _find(record)
    if shared_object is None and not can_write(record.parent):
        shared_object = _find(_private(record))
    return shared_object


def _find(record: Path) -> SharedObject | None:
    try:
        text = record.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
    library: Path | None = None
    try:
        fields = parse_json(text)
        name, digest, function = (str(fields[key]) for key in ("library", "sha256", "function"))
        if name != os.path.basename(name):
            raise ValueError(f"the library is {name!r}")
        library = record.with_name(name)
        if hashlib.sha256(library.read_bytes()).hexdigest() != digest:
            raise ValueError("its bytes have another hash than was recorded")
    except (ValueError, KeyError, TypeError, OSError) as error:
        logger.warning("Host code %s is damaged (%s). It is removed and compiled again.", library or record, error)
        for path in (record, library):
            if path is not None:
                path.unlink(missing_ok=True)
        return None
    return SharedObject(library=library, function=function)


def require_ours(library: Path) -> None:
    """Check that no other user could have written a library.

    The file, its folder, and the folders up to the package's own are checked; root may own them.
    """
    root = env.home().absolute()
    chain = [library.absolute(), *library.absolute().parents]
    checked = chain[: chain.index(root) + 1] if root in chain else chain[:2]
    unsafe = {path: problem for path in checked if (problem := _problem(path.stat()))}
    if not unsafe:
        return
    names = [f"'{path}' ({problem})" for path, problem in unsafe.items()]
    paths = " ".join(f"'{path}'" for path in unsafe)
    if any("owned" in problem for problem in unsafe.values()):
        command = f"Remove them, or take them over with `chown {os.geteuid()} {paths} && chmod go-w {paths}`"
    else:
        command = f"Run `chmod go-w {paths}`"
    message = f"Host code is not loaded, because other users could have changed it: {', '.join(names)}."
    hint = f"{command}, or set OPTIMUM_NEURON_HOME to a folder of your own."
    raise LoweringError(
        message, hint=hint, library=str(library), unsafe={str(path): problem for path, problem in unsafe.items()}
    )


def _problem(status: os.stat_result) -> str:
    if status.st_uid not in (0, os.geteuid()):
        return f"owned by user {status.st_uid}"
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH) and not status.st_mode & stat.S_ISVTX:
        return f"mode {stat.S_IMODE(status.st_mode):o}"
    return ""


_FLAGS = ("-std=c++20", "-fPIC", "-shared", "-fvisibility=hidden", "-w")
_LAST_LINES = 20


@dataclasses.dataclass(frozen=True, kw_only=True)
class NativeLibrary:
    """A C++ file that becomes a shared object."""

    title: str
    source: Path
    """The file. The name of the shared object depends on all C++ in its folder."""
    folder: str
    """Its folder, below the package's cache folder."""
    flags: tuple[str, ...] = ("-O2",)
    """Optimization and target of the compiler."""
    libraries: tuple[str, ...] = ("torch_cpu",)
    """Libraries of torch that it calls."""
    headers: Path | None = None
    """A folder of headers that it includes, whose content is part of the name too."""
    announced_s: int | None = None
    """Duration of compiling, announced on stderr; None announces nothing."""

    def record(self) -> Path:
        """Return where the record of the shared object for the installed torch is, or will be."""
        import torch

        digest = hashlib.sha256()
        abi = torch.compiled_with_cxx11_abi()
        digest.update("\0".join([torch.__version__, str(abi), platform.machine(), *_FLAGS, *self.flags]).encode())
        for folder in (self.source.parent, *([self.headers] if self.headers else ())):
            for path in sorted(folder.iterdir()):
                if path.suffix in {".cpp", ".h"}:
                    digest.update(path.name.encode() + b"\0" + path.read_bytes())
        return env.home() / self.folder / f"{self.source.stem}-{digest.hexdigest()[:16]}.json"

    def ensure_built(self, record: Path | None = None) -> Path:
        """Return the shared object of a record; build it if no process has done so, or if it is damaged."""
        record = record or self.record()
        built = find(record) or self._built(record)
        require_ours(built.library)
        return built.library

    def _built(self, record: Path) -> SharedObject:
        from filelock import FileLock

        compiler, record = self._compiler(), writable(record)
        try:
            make_folder(record.parent)
            with FileLock(record.with_suffix(".lock")):
                built = find(record)
                if built is None:
                    self._build(compiler, record)
                    built = find(record)
        except OSError as error:
            message = f"{record.parent} cannot be written ({error}), and {self.title} is kept there."
            hint = "Set OPTIMUM_NEURON_HOME to a folder that you may write."
            raise LoweringError(message, hint=hint, path=str(record.parent)) from error
        assert built is not None, "just published"
        return built

    def _compiler(self) -> str:
        from ..upstream.inductor import InvalidCxxCompiler, get_cpp_compiler

        try:
            return get_cpp_compiler()
        except InvalidCxxCompiler as error:
            message = f"This machine has no C++ compiler, and the first use of {self.title} compiles it."
            hint = "Install g++ or clang++ (apt-get install g++), or name one with CXX."
            raise LoweringError(message, hint=hint) from error

    def _build(self, compiler: str, record: Path) -> None:
        import torch

        root = Path(torch.__file__).parent
        if self.announced_s is not None:
            time = f"about {self.announced_s} s, once"
            print(f"optimum_neuron: building {self.title} for torch {torch.__version__}; {time}", file=sys.stderr)
        library = record.with_suffix(".so")
        with tempfile.TemporaryDirectory(dir=record.parent) as folder:
            built = Path(folder, library.name)
            words = [compiler, *_FLAGS, *self.flags, f"-I{root}/include", f"-I{root}/include/kineto"]
            words += [str(self.source), "-o", str(built)]
            words += [f"-L{root}/lib", *(f"-l{name}" for name in self.libraries), f"-Wl,-rpath,{root}/lib"]
            done = subprocess.run(words, capture_output=True, text=True, check=False)
            if done.returncode != 0:
                last = "\n".join(done.stderr.splitlines()[-_LAST_LINES:])
                message = f"{compiler} cannot build {self.title} (exit code {done.returncode}):\n{last}"
                hint = "Use a compiler that knows C++20, or report this output."
                raise LoweringError(message, hint=hint, compiler=compiler, exit_code=done.returncode, output=last)
            publish(built, library, {record: ""})
