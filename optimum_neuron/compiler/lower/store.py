"""The local host-code store: compiled packages by content, CPU, torch version and generator.

Nothing in it comes from an artifact: a package is written only by `inductor.compile_body` on this machine.
Losing it costs compile time and nothing else.
"""

from __future__ import annotations

import functools
import hashlib
import json
from pathlib import Path

from ... import env
from .choose import CpuFeatures, HostLevel
from .prepare import Preparation


@functools.cache
def _generator_hash() -> str:
    """Changes whenever the code that writes host code changes."""
    folder = Path(__file__).parent
    text = b"".join(path.read_bytes() for path in sorted(folder.rglob("*.py")))
    return hashlib.sha256(text).hexdigest()[:8]


def package_path(
    subprogram: str,
    level: HostLevel,
    features: CpuFeatures,
    root: Path | None = None,
    preparations: tuple[Preparation, ...] = (),
) -> Path:
    """Where the host code of a subprogram is, or would be, kept.

    Args:
        subprogram: name of the subprogram, which is the hash of its content.
        level: how it is compiled.
        features: CPU it is compiled for.
        root: folder of the store; the package's own cache folder by default.
        preparations: what it expects of its weights.
    """
    import torch

    folder = (root or env.home() / "host") / f"torch{torch.__version__.replace('+', '-')}-{features}"
    expected = json.dumps([one.to_list() for one in preparations])
    suffix = f"-{hashlib.sha256(expected.encode()).hexdigest()[:8]}" if preparations else ""
    return folder / f"{subprogram}-{level}-t{torch.get_num_threads()}-{_generator_hash()}{suffix}.pt2"
