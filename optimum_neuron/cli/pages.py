"""`--html FILE` of commands: a self-contained page of the dictionary that `--json` prints.

files = output_files(self.args)  # before the work, so that a bad path costs no time
data = write_page(files, data, estimate_page)
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import ConfigError
from ..files.atomic import write_bytes
from .arguments import options_from
from .output import Out

if TYPE_CHECKING:
    from ..pages import Page


def add_html(parser: argparse._ActionsContainer) -> None:
    """Add the option."""
    parser.add_argument("--html", metavar="FILE", help="write a self-contained page with plots of the same numbers")


def output_files(args: argparse.Namespace, *names: str) -> dict[str, Path]:
    """Return the files that options name, all of which must be new, by option."""
    files = {name: Path(path) for name, path in options_from(args, *(names or ("html",))).items()}
    problems = []
    for name, path in files.items():
        if path.exists():
            problems.append(f"--{name} {path} exists")
        elif not path.absolute().parent.is_dir():
            problems.append(f"--{name} {path}: there is no folder {path.absolute().parent}")
    if len({path.absolute() for path in files.values()}) < len(files):
        problems.append("both files have the same name")
    if problems:
        message = f"The {'files' if len(files) > 1 else 'file'} cannot be written: {'; '.join(problems)}."
        raise ConfigError(message, hint="Pass new files in folders that exist.", problems=problems)
    return files


def write_page(
    files: Mapping[str, Path], data: Mapping[str, Any], page: Callable[[Mapping[str, Any]], Page]
) -> dict[str, Any]:
    """Write the page of a result if `--html` was given; return the result with the name of the file."""
    if "html" not in files:
        return dict(data)
    write_bytes(files["html"], page(data).text().encode(), error=ConfigError)
    return {**data, "files": {name: str(path) for name, path in files.items()}}


def show_files(out: Out, data: Mapping[str, Any]) -> None:
    """Name the files that were written."""
    for path in data.get("files", {}).values():
        out.text(f"wrote {path}")
