"""`neuron-profile` and `neuron-explorer`: profile a NEFF or an exported folder, and show the profile. All simulated.

`capture` runs the graphs on simulated cores and writes a session file; `view` shows one. A session file is the profile
of `optimum_neuron.profiling` as JSON, not the format of the real tools, and there is no web interface.

    neuron-explorer capture -n model.neff -s profile.ntff
    neuron-explorer view -n model.neff -s profile.ntff --output-format summary-json
"""

from __future__ import annotations

import argparse
import functools
import io
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ..cli import NeuronParser, Out, run_guarded, to_json
from ..errors import ConfigError
from ..files.atomic import write_bytes
from ..files.plain_json import parse_json

if TYPE_CHECKING:
    from ..profiling import Profile

SESSION_FILE = Path("profile.ntff")
"""Name that the real tools give to a session file."""
_INSPECTED = "profile.json"
"""Name that NEURON_RT_INSPECT_ENABLE=1 gives to it."""


def main(arguments: Sequence[str] | None = None, *, prog: str = "neuron-explorer") -> int:
    """Run `neuron-explorer` and return its exit code."""
    parser = NeuronParser(prog=prog, description="Profile compiled programs, simulated.")
    commands = parser.add_subparsers(dest="command", required=True)
    capture = commands.add_parser("capture", help="run a NEFF or an exported folder and write its profile")
    capture.add_argument("-n", "--neff-path", type=Path, required=True, metavar="PATH", help="NEFF or exported folder")
    capture.add_argument(
        "-s",
        "--session-file",
        type=Path,
        default=SESSION_FILE,
        metavar="FILE",
        help=f"file to write; an older one is replaced (default: {SESSION_FILE})",
    )
    view = commands.add_parser("view", help="show a profile")
    view.add_argument("-n", "--neff-path", type=Path, metavar="PATH", help="what the profile must be of")
    place = view.add_mutually_exclusive_group()
    place.add_argument("-s", "--session-file", type=Path, metavar="FILE", help=f"the profile (default: {SESSION_FILE})")
    place.add_argument("-d", "--session-dir", type=Path, metavar="DIR", help="folder that has one profile below it")
    view.add_argument(
        "--output-format",
        choices=tuple(_FORMATS),
        default="summary-text",
        help="tables, the same as JSON, every call and operator as JSON, or a trace (default: summary-text)",
    )
    view.add_argument("--disable-ui", action="store_true", help="start no web interface: there is none")
    view.add_argument("--output-file", type=Path, metavar="FILE", help="file to write (default: stdout)")
    options = parser.parse_args(arguments)
    run = _capture if options.command == "capture" else _view
    return run_guarded(lambda out: run(options, out), Out(), command=f"{prog} {options.command}")


def _capture(options: argparse.Namespace, out: Out) -> None:
    from ..profiling import profile_compiled

    source, file = options.neff_path, options.session_file
    profile = profile_compiled(source)
    write_bytes(file, profile.to_json().encode(), error=ConfigError)
    out.text(f"{file}: {profile.device_us / 1e3:.4g} ms on the device, simulated")
    out.hint(f"neuron-explorer view -n {source} -s {file}")


def _view(options: argparse.Namespace, out: Out) -> None:
    file = options.session_file or (_only_session(options.session_dir) if options.session_dir else SESSION_FILE)
    profile = _read(file)
    if options.neff_path and options.neff_path.absolute().name != profile.name:
        message = f"{file} is the profile of {profile.name}, not of {options.neff_path}."
        hint = f"Leave -n out, or run neuron-explorer capture -n {options.neff_path} -s {file}."
        raise ConfigError(message, hint=hint, name=profile.name)
    text = _FORMATS[options.output_format](profile)
    if options.output_file is None:
        out.text(text)
    else:
        write_bytes(options.output_file, f"{text}\n".encode(), error=ConfigError)


def _only_session(folder: Path) -> Path:
    """The session file below a folder, where there is exactly one."""
    names = (f"*{SESSION_FILE.suffix}", _INSPECTED)
    files = sorted(file for name in names for file in folder.rglob(name))
    if len(files) != 1:
        content = f"{len(files)} profiles: {', '.join(map(str, files))}" if files else "no profile"
        hint = "Pass one session file with -s."
        raise ConfigError(
            f"{folder} has {content}.", hint=hint, folder=str(folder), files=[str(file) for file in files]
        )
    return files[0]


def _read(file: Path) -> Profile:
    from ..profiling import Profile

    hint = "Pass a file that neuron-explorer capture wrote."
    try:
        text = file.read_text(encoding="utf-8")
        parse_json(text)
        return Profile.from_json(text)
    except OSError as error:
        raise ConfigError(f"Cannot read the profile {file}: {error.strerror}.", hint=hint, path=str(file)) from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        message = f"{file} is not a session file of this tool; those of the real tools are not supported."
        raise ConfigError(message, hint=hint, path=str(file)) from error


def _tables(profile: Profile) -> str:
    from ..cli import DEFAULT_TOP, show_profile

    text = io.StringIO()
    show_profile(Out(stdout=text), {**profile.to_dict(DEFAULT_TOP), "files": {}})
    return text.getvalue().rstrip("\n")


def _trace(profile: Profile) -> str:
    from ..profiling import trace_json

    return trace_json(profile)


_FORMATS: dict[str, Callable[[Profile], str]] = {
    "summary-text": _tables,
    "summary-json": lambda profile: to_json(profile.to_dict()),
    "json": lambda profile: to_json(profile),
    "perfetto": _trace,
}

neuron_profile = functools.partial(main, prog="neuron-profile")


if __name__ == "__main__":
    sys.exit(main())
