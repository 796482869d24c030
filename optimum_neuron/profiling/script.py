"""Profile a Python script: it runs in a child process, as with `python SCRIPT`, which records the work of its cores.

Output, traceback, and exit code of the script are unchanged. Only the child itself is recorded, not processes that it
starts.

    run = profile_script("generate.py", ["--max_new_tokens", "8"])
    print(run.exit_code, run.profile)
"""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from ..errors import ConfigError
from ..simulator import as_constants
from .profile import Profile, nothing_ran


@dataclasses.dataclass(frozen=True, kw_only=True)
class ScriptRun:
    """Result of a script."""

    exit_code: int
    """Exit code of the script; 128 plus the signal's number if a signal ended it."""
    profile: Profile | None
    """None if the script failed."""
    compiles: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """Its `torch.neuron.compile_report()`, as plain data; empty if it used no torch device or failed."""


def profile_script(
    script: str | Path,
    arguments: Sequence[str] = (),
    *,
    stdout: IO[str] | int | None = None,
    constants: str | Path | None = None,
) -> ScriptRun:
    """Run a script in a child process and profile every compiled program and eager operator that it calls.

    Args:
        script: Python file.
        arguments: its command line.
        stdout: where it prints; None for the output of this process.
        constants: a file of `optimum-cli neuron calibrate`; None for those of this version.

    Raises:
        ConfigError: there is no such file, it cannot be read, or the script used no core.

    Example:
        ```python no-run
        run = profile_script("generate.py")
        assert run.exit_code == 0 and run.profile is not None
        ```
    """
    script = Path(script)
    if not script.is_file():
        problem = "is a folder, not a script" if script.is_dir() else "does not exist"
        raise ConfigError(f"{script} {problem}.", hint="Pass a Python file.", path=str(script))
    as_constants(constants)  # an error before the script runs
    with tempfile.TemporaryDirectory(prefix="neuron_profile_") as folder:
        result = Path(folder) / "profile.json"
        own = [str(result), "" if constants is None else str(constants)]
        command = [sys.executable, "-m", f"{__package__}.child", *own, str(script), *arguments]
        code = subprocess.run(command, stdout=stdout, check=False).returncode
        if code:
            return ScriptRun(exit_code=128 - code if code < 0 else code, profile=None)
        if not result.exists():
            raise nothing_ran(str(script))
        data = json.loads(result.read_bytes())
        return ScriptRun(exit_code=0, profile=Profile.from_json(data["profile"]), compiles=data["compiles"])
