"""Code blocks of Markdown pages and docstrings: find them, and run them as a reader would.

Tags behind the language set the handling of a block:

    ```python              runs; blocks of one page share their names and the folder, from top to bottom
    ```python no-run       is only compiled
    ```bash                each line is an `optimum-cli` command and runs
    ```bash no-run         its `optimum-cli` commands are only parsed
    ```yaml                the same for those of `run:` and `script:`, as pipelines of GitHub and GitLab have them
    ```... checkpoint      runs in the tests with the marker `checkpoint`, in a separate process
    ```... needs:A,B       runs where these modules are installed, `A>=1.2` in such a version; only blocks that need
                           them too see its names
    ```... file:NAME       is written to this file, which later blocks use
    ```bash apart          runs in its own process, whatever the commands are
    ```text output         is exactly the stdout of the block before it

It does not depend on pytest.
"""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import io
import os
import re
import shlex
import subprocess
import sys
import textwrap
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml

from tests import warm
from tests.tree import ROOT, files

PYTHON, SHELL, PIPELINE = ("python",), ("bash", "shell", "sh"), ("yaml",)
TAGS = {"no-run", "checkpoint", "output", "apart"}
"""Words behind the language; `needs:` and `file:` begin others."""
_FENCE = re.compile(
    r"^(?P<indent>[ ]*)```(?P<info>[^\n`]*)\n(?P<text>.*?)^(?P=indent)```[ ]*$", re.DOTALL | re.MULTILINE
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Fence:
    """One block of code."""

    path: Path
    """File it is in."""
    line: int
    """Line of the file that its text begins after."""
    language: str
    """First word behind the backticks."""
    tags: frozenset[str]
    """The other words."""
    text: str
    """Text of the block, without common indentation."""

    def value(self, key: str) -> str | None:
        """Value of the tag `key:`, or None."""
        return next((tag.partition(":")[2] for tag in self.tags if tag.startswith(f"{key}:")), None)

    @property
    def needs(self) -> frozenset[str]:
        """Modules without which it does not run."""
        return frozenset(filter(None, (self.value("needs") or "").split(",")))

    def __str__(self) -> str:
        return f"{self.path.relative_to(ROOT)}:{self.line}"


def find_fences(text: str, path: Path, first_line: int = 1) -> list[Fence]:
    """Return the blocks of a text that begins at a line of a file."""
    results = []
    for match in _FENCE.finditer(text):
        language, *tags = match["info"].split() or [""]
        line = first_line + text[: match.start()].count("\n")
        code = textwrap.dedent(match["text"])
        results.append(Fence(path=path, line=line, language=language, tags=frozenset(tags), text=code))
    return results


def page_fences(path: Path) -> list[Fence]:
    """Return the blocks of a Markdown page."""
    return find_fences(path.read_text(encoding="utf-8"), path)


def pages() -> list[Path]:
    """Every Markdown page that we write, README first."""
    return sorted((ROOT / name for name in files("*.md")), key=lambda path: (len(path.parts), path))


def with_outputs(fences: Sequence[Fence]) -> Iterator[tuple[Fence, str | None]]:
    """Pair each block with the output that stands behind it, if any."""
    for fence, following in zip(fences, [*fences[1:], None], strict=True):
        if "output" not in fence.tags:
            yield fence, following.text if following is not None and "output" in following.tags else None


def compiled(fence: Fence) -> Any:
    """Compile a Python block; tracebacks show the page and its line."""
    return compile("\n" * fence.line + fence.text, str(fence.path), "exec")


def commands(fence: Fence) -> list[list[str]]:
    """Return the words behind `optimum-cli` of each such line of a shell block, or of the steps of a pipeline."""
    if fence.language in SHELL:
        text = fence.text
    elif fence.language in PIPELINE:
        text = "\n".join(_steps(yaml.safe_load(fence.text)))
    else:
        return []
    results = []
    for line in text.replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True)
        if words and words[0] == "optimum-cli":
            results.append(words[1:])
    return results


def _steps(node: Any) -> Iterator[str]:
    """Yield the commands below a node of a pipeline."""
    if isinstance(node, list):
        for one in node:
            yield from _steps(one)
    elif isinstance(node, dict):
        for key, value in node.items():
            if key == "run" or key == "script":
                yield from [value] if isinstance(value, str) else value
            else:
                yield from _steps(value)


def run_here(fences: Sequence[Fence], without: Sequence[str] = ()) -> None:
    """Run blocks one after the other in this process and in the current folder, and compare their outputs.

    Args:
        fences: the blocks.
        without: modules that are not installed; blocks that need them are left out.
    """
    scopes: dict[frozenset[str], dict[str, Any]] = {frozenset(): {"__name__": "__main__"}}
    try:
        for fence, output in with_outputs(fences):
            if fence.needs & set(without):
                continue
            if "apart" in fence.tags:
                # A separate instance: this process may hold cores of the default one.
                run_apart(
                    fence, output, Path.cwd(), {"OPTIMUM_NEURON_INSTANCE": "inf2.24xlarge", "PET_STANDALONE": "1"}
                )
                continue
            if fence.needs:
                # Blocks without these modules must run without their names.
                visible = [names for needs, names in scopes.items() if needs <= fence.needs]
                scopes[fence.needs] = {name: value for names in visible for name, value in names.items()}
            stdout = run_in(scopes[fence.needs], fence, is_optional=bool(fence.needs))
            if output is not None:
                compare(fence, stdout, output)
    finally:
        scopes.clear()
        gc.collect()  # models of an example keep their cores for as long as its names refer to each other


def run_in(names: dict[str, Any], fence: Fence, *, is_optional: bool) -> str:
    """Run a block with the names of a page, or write its file; return its output."""
    stdout = io.StringIO()
    # Warnings of other packages are ignored.
    tolerance = warnings.catch_warnings(action="default") if is_optional else contextlib.nullcontext()
    with contextlib.redirect_stdout(stdout), tolerance:
        if (file := fence.value("file")) is not None:
            Path(file).write_text(fence.text, encoding="utf-8")
        elif fence.language in PYTHON:
            exec(compiled(fence), names)
        else:
            for words in commands(fence):
                run_command(words)
    return stdout.getvalue()


def run_command(words: Sequence[str]) -> None:
    """Run `optimum-cli` with the given words in this process; any exit code but 0 fails."""
    from optimum.commands.optimum_cli import main

    argv, sys.argv = sys.argv, ["optimum-cli", *words]
    try:
        main()
    except SystemExit as stop:
        assert not stop.code, f"optimum-cli {shlex.join(words)} ended with {stop.code}"
    finally:
        sys.argv = argv


def run_apart(fence: Fence, output: str | None, folder: Path, environment: dict[str, str]) -> str:
    """Run one block in a separate process, with the commands of this environment, and compare its output.

    Returns:
        All that it printed, stdout first.
    """
    bin_folder = Path(sys.executable).parent
    path = os.pathsep.join([str(bin_folder), os.environ.get("PATH", "")])
    variables = {**os.environ, **environment, "PATH": path}
    if fence.language in PYTHON:
        result = warm.run("-c", fence.text, cwd=folder, env=variables)
    else:
        words = ["bash", "-euc", fence.text]
        result = subprocess.run(words, cwd=folder, env=variables, capture_output=True, text=True, check=False)
    assert result.returncode == 0, f"{fence} ended with {result.returncode}\n{result.stderr[-4000:]}"
    if output is not None:
        compare(fence, result.stdout, output)
    return result.stdout + result.stderr


def compare(fence: Fence, output: str, text: str) -> None:
    """Fail where a block prints something else than its page shows."""
    assert output == text, f"{fence} prints\n{output}\nand the page shows\n{text}"
