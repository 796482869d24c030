"""C++ of this package: compiled once for the installed torch, kept in the user's cache, shared by all processes.

The name of a shared object has a hash of everything it depends on, so one that was built for another torch is never
loaded; a record next to it has the hash of its bytes (`shared_objects.py`). It links to torch's libraries only: no
Python headers and no pybind are needed, and compiling takes seconds.

    path = NativeLibrary(title="the neuron device", source=Path("csrc/neuron.cpp"), folder="device").ensure_built()
"""

from __future__ import annotations

import dataclasses
import hashlib
import platform
import subprocess
import sys
import tempfile
from pathlib import Path

from ..base import env
from ..errors import LoweringError
from .shared_objects import SharedObject, find, make_folder, publish, require_ours, writable

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
