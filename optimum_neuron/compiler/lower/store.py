"""The local host-code store: compiled packages by content, CPU, torch version and generator.

Nothing in it comes from an artifact: a package is written only by `inductor.compile_body` on this machine.
Losing it costs compile time and nothing else.
"""

from __future__ import annotations

import functools
import hashlib
from pathlib import Path

from ... import env
from .choose import CpuFeatures, HostLevel


@functools.cache
def _generator_hash() -> str:
    """Changes whenever the code that writes host code changes."""
    folder = Path(__file__).parent
    text = b"".join((folder / name).read_bytes() for name in ("arithmetic.py", "inductor.py"))
    return hashlib.sha256(text).hexdigest()[:8]


def package_path(subprogram: str, level: HostLevel, features: CpuFeatures, root: Path | None = None) -> Path:
    """Where the host code of a subprogram is, or would be, kept.

    Args:
        subprogram: name of the subprogram, which is the hash of its content.
        level: how it is compiled.
        features: CPU it is compiled for.
        root: folder of the store; the package's own cache folder by default.
    """
    import torch

    folder = (root or env.home() / "host") / f"torch{torch.__version__.replace('+', '-')}-{features}"
    return folder / f"{subprogram}-{level}-t{torch.get_num_threads()}-{_generator_hash()}.pt2"
