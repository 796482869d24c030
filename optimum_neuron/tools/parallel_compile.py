"""`neuron_parallel_compile`: run a script so that its graphs are compiled, and count the compiled and the cached ones.

Graphs are compiled in the processes that capture them, while the script runs, and compiles of one process are not
parallel. On the device "xla" they are not run, so their results are zeros; other steps are executed. Scripts that
shorten their run where NEURON_EXTRACT_GRAPHS_ONLY or NEURON_PARALLEL_COMPILE is 1 do so. NEFFs go to the compile cache,
graphs of `torch.compile` to torch's caches.

    neuron_parallel_compile torchrun --nproc_per_node=2 train.py
"""

from __future__ import annotations

import argparse
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from ..base import env
from ..base.wording import counted, size
from ..cli import NeuronParser, Out, positive_int, run_guarded
from ..compiler import tally
from ..compiler.cache import CompileCache
from ..errors import ConfigError

_WITH_VALUE = ("--command", "--num_parallel")
_KINDS: tuple[tuple[tally.Kind, str], ...] = (
    ("neff", "NEFFs (compile cache)"),
    ("torch.compile", "graphs of torch.compile (torch's caches)"),
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run `neuron_parallel_compile` and return its exit code: that of the script."""
    words, script = _split(list(sys.argv[1:] if arguments is None else arguments))
    parser = NeuronParser(
        prog="neuron_parallel_compile",
        usage="neuron_parallel_compile [OPTIONS] SCRIPT_COMMAND ...",
        description="Run a script so that its graphs are compiled and cached, and count them.",
    )
    parser.add_argument(
        "--command",
        choices=("compile", "collect", "clean", "clear-locks"),
        default="compile",
        help="compile, or collect, which compiles too: run the script; clean: empty the compile cache; clear-locks: "
        "say which entries are locked (default: compile)",
    )
    parser.add_argument("--num_parallel", type=positive_int, metavar="N", help="has no effect, and a warning says so")
    parser.add_argument(
        "--ignore-errors", action="store_true", help="exit with 0 if the script fails; compiled graphs stay cached"
    )
    options = parser.parse_args(words)
    return run_guarded(lambda out: _run(options, script, out), Out(), command=parser.prog)


def _split(words: list[str]) -> tuple[list[str], list[str]]:
    """Split the command line into options and the script's command, which begins at the first positional word."""
    place = 0
    while place < len(words) and words[place].startswith("-"):
        if words[place] == "--":
            return words[:place], words[place + 1 :]
        place += 2 if words[place] in _WITH_VALUE else 1
    return words[:place], words[place:]


def _run(options: argparse.Namespace, script: Sequence[str], out: Out) -> int:
    if options.command in ("clean", "clear-locks"):
        return _clean(out) if options.command == "clean" else _show_locks(out)
    if options.command == "collect":
        out.warning("--command collect: graphs are compiled as they are collected, so no later compile is needed")
    if options.num_parallel is not None:
        out.warning("--num_parallel has no effect: a graph is compiled by the process that captures it")
    return _compile(script, ignore_errors=options.ignore_errors, out=out)


def _compile(script: Sequence[str], *, ignore_errors: bool, out: Out) -> int:
    """Run the script, and report on stderr: stdout is the script's."""
    if env.no_compile_cache():
        message = "NEURON_CC_FLAGS has --no_cache, so compiled graphs would be lost."
        raise ConfigError(message, hint="Remove --no_cache from NEURON_CC_FLAGS.", variable="NEURON_CC_FLAGS")
    with tempfile.TemporaryDirectory(prefix="neuron_parallel_compile_") as folder:
        code = _exit_code(script, Path(folder))
        records = tally.read(Path(folder))
    for kind, what in _KINDS:
        compiled = [record.was_compiled for record in records if record.kind == kind]
        print(f"{what}: {sum(compiled)} compiled, {len(compiled) - sum(compiled)} found", file=out.stderr)
    if not records:
        out.warning("the script compiled nothing: operators on tensors of the torch device run one by one")
    if code and ignore_errors:
        out.warning(f"{shlex.join(script)} ended with exit code {code}, which --ignore-errors ignores")
        return 0
    return code


def _exit_code(script: Sequence[str], records: Path) -> int:
    """Run the script; 128 and the number of the signal if one ended it."""
    hint = "Write the command as a shell would run it: neuron_parallel_compile python train.py."
    if not script:
        raise ConfigError("There is no command to run.", hint=hint, command=[])
    try:
        code = subprocess.run(list(script), env=env.recording_compiles(records), check=False).returncode
    except OSError as error:
        message = f"Cannot run {script[0]}: {error.strerror}."
        raise ConfigError(message, hint=hint, command=list(script)) from error
    return 128 - code if code < 0 else code


def _clean(out: Out) -> int:
    cache = CompileCache()
    pruned = cache.prune(max_size_bytes=0)
    removed = counted(len(pruned["removed"]) + len(pruned["spool_removed"]), "file or folder", "files and folders")
    out.text(f"{cache.url}: removed {removed}, {size(pruned['freed_bytes'])}")
    return 0


def _show_locks(out: Out) -> int:
    cache = CompileCache()
    locked = [entry["name"] for entry in cache.status()["entries"] if entry["state"] == "locked"]
    out.text(f"{cache.url}: {counted(len(locked), 'entry', 'entries')} locked by running processes")
    for name in locked:
        out.text(name)
    out.text("Nothing to clear: a lock ends with the process that holds it.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
