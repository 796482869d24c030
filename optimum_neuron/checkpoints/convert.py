"""Runs a converter in a separate process: files of a package in, a finished folder out.

A process, so that the caller imports neither torch nor transformers, gets the memory of the conversion back, and keeps
its environment: the child alone is set offline. It does not depend on packages, caches, or file formats: each module in
`converters/` has a function `convert(source, destination)` that reads the folder `source`, which it may use up, and
makes the folder `destination`.

    from optimum_neuron.checkpoints.convert import convert

    convert("gguf", Path("taken_out"), Path("checkpoint"))
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import subprocess
import sys
from pathlib import Path

from ..errors import ModelError
from .download import tool_error

_EXTRA = {"gguf": "gguf"}
"""Converters that need a package of the extra [checkpoints], and which."""


def require(converter: str) -> None:
    """Raise unless the packages that a converter needs are installed."""
    needed = _EXTRA.get(converter)
    if needed is not None and importlib.util.find_spec(needed) is None:
        message = f"The package {needed} is not installed; the converter {converter} needs it."
        raise ModelError(message, hint=f"Run `pip install {needed}`.", package=needed)


def convert(converter: str, source: Path, destination: Path) -> None:
    """Convert the files of a package.

    Args:
        converter: Name of a module in `converters/`.
        source: Folder of the files; used up.
        destination: The folder to make.

    Raises:
        ModelError: If a package is missing or the files cannot be read.
        CacheError: If the disk is full.
    """
    require(converter)
    files = ", ".join(sorted(path.name for path in source.iterdir()))
    command = [sys.executable, "-c", f"from {__name__} import _main; _main()"]
    command += [converter, str(source), str(destination)]
    child = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, check=False
    )
    if child.returncode != 0:
        raise tool_error(
            f"Converting {files} ended with exit status {child.returncode}",
            child.stdout.decode("utf-8", "replace"),
            hint="Check that the installed transformers supports the architecture and that memory suffices.",
            converter=converter,
            files=files,
        )


def _main() -> None:
    """The child process: it alone changes its environment."""
    _, converter, source, destination = sys.argv
    # Read at import by huggingface_hub and tqdm, so set before transformers is imported.
    os.environ["HF_HUB_OFFLINE"] = "1"
    os.environ["HF_HUB_DISABLE_PROGRESS_BARS"] = os.environ["TQDM_DISABLE"] = "1"
    module = importlib.import_module(f"{__package__}.converters.{converter}")
    module.convert(Path(source), Path(destination))
