"""The shared object of the device: compiled once for each torch, kept in the user's cache.

Its name has a hash of everything it depends on, so one that was built for another torch is never loaded. It links to
libc10 and libtorch_cpu only: no Python headers and no pybind are needed, and compiling takes seconds.

    python -m optimum_neuron.device.build        # ahead of time, for example in a container image
"""

from __future__ import annotations

import hashlib
import os
import platform
import subprocess
import sys
import tempfile
from pathlib import Path

from .. import env
from ..errors import LoweringError, refusal

SOURCES = Path(__file__).with_name("csrc")
_FLAGS = ("-std=c++20", "-O2", "-fPIC", "-shared", "-fvisibility=hidden", "-w")
_LAST_LINES = 20


def cached_path() -> Path:
    """Where the shared object for the installed torch is, or will be."""
    import torch

    digest = hashlib.sha256()
    abi = torch.compiled_with_cxx11_abi()
    digest.update("\0".join([torch.__version__, str(abi), platform.machine(), *_FLAGS]).encode())
    for path in sorted(SOURCES.iterdir()):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return env.home() / "device" / f"neuron-{digest.hexdigest()[:16]}.so"


def ensure_built(path: Path) -> Path:
    """Return the shared object at `path`, a value of `cached_path`; build it if no process has done so.

    Raises:
        LoweringError: there is no C++ compiler, it fails, or the cache cannot be written.
    """
    if path.exists():
        return path
    from filelock import FileLock

    compiler = _compiler()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(path.with_suffix(".lock")):
            if not path.exists():
                _build(compiler, path)
    except OSError as error:
        raise LoweringError(
            refusal(
                asked=f"build the neuron device in {path.parent}",
                found=str(error),
                why="its shared object is kept there",
                do="set OPTIMUM_NEURON_HOME to a folder that may be written",
            )
        ) from error
    return path


def has_compiler() -> bool:
    """Whether there is a C++ compiler that runs."""
    from ..compiler.lower.choose import probe_compiler

    return probe_compiler() is not None


def _compiler() -> str:
    if not has_compiler():
        raise LoweringError(
            refusal(
                asked="the first use of the neuron device",
                found="no C++ compiler on this machine",
                why="the device is compiled once for the installed torch",
                do="install g++ or clang++ (apt-get install g++), or name one with CXX",
            )
        )
    from torch._inductor.cpp_builder import get_cpp_compiler

    return get_cpp_compiler()


def _build(compiler: str, path: Path) -> None:
    import torch

    root = Path(torch.__file__).parent
    print(
        f"optimum_neuron: building the neuron device for torch {torch.__version__}; about 15 s, once",
        file=sys.stderr,
        flush=True,
    )
    # Beside its place, so that the rename is atomic.
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        built = Path(folder, path.name)
        words = [compiler, *_FLAGS, f"-I{root}/include", str(SOURCES / "neuron.cpp"), "-o", str(built)]
        words += [f"-L{root}/lib", "-lc10", "-ltorch_cpu", f"-Wl,-rpath,{root}/lib"]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            last = "\n".join(done.stderr.splitlines()[-_LAST_LINES:])
            raise LoweringError(
                refusal(
                    asked=f"build the neuron device with {compiler}",
                    found=f"it ended with {done.returncode}",
                    why="the device is compiled once for the installed torch",
                    do=f"use a compiler that knows C++20, or report this output:\n{last}",
                )
            )
        os.replace(built, path)


if __name__ == "__main__":
    print(ensure_built(cached_path()))
