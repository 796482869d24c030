"""The shared object of the device: compiled once for each torch, kept in the user's cache.

python -m optimum_neuron.device.build        # ahead of time, for example in a container image
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

from ..files.shared_objects import NativeLibrary

SOURCES = Path(__file__).with_name("csrc")


def _library() -> NativeLibrary:
    return NativeLibrary(
        title="the neuron device",
        source=SOURCES / "neuron.cpp",
        folder="device",
        libraries=("c10", "torch_cpu"),
        announced_s=15,
    )


def xla_library() -> NativeLibrary:
    """Return the second shared object, which makes the device "xla" of the same sources."""
    source = SOURCES / "xla" / "xla.cpp"
    return dataclasses.replace(_library(), title="the xla device", source=source, headers=SOURCES)


def cached_path() -> Path:
    """Return where the record of the shared object for the installed torch is, or will be."""
    return _library().record()


def ensure_built(record: Path) -> Path:
    """Return the shared object of a record, a value of `cached_path`; build it if no process has done so."""
    return _library().ensure_built(record)


if __name__ == "__main__":
    print(ensure_built(cached_path()))
