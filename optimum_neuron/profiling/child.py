"""The child process of `script.py`: runs a script as `python SCRIPT` would, and leaves its profile in a file.

python -m optimum_neuron.profiling.child RESULT CONSTANTS SCRIPT [ARGUMENT ...]
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import runpy
import sys
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from .recorder import Recorder, record


def main(result: str, constants: str, script: str, arguments: Sequence[str]) -> int:
    """Run a script and return its exit code; the profile is written where it is 0 and a core ran something."""
    stack = contextlib.ExitStack()
    recorder = stack.enter_context(record(Path(script).name, constants=constants or None))
    code = run(script, arguments)
    if code == 0:
        # At exit, when threads of the script have ended; before functions that others registered, torch among them.
        atexit.register(_leave, Path(result), recorder, stack)
    return code


def run(script: str, arguments: Sequence[str]) -> int:
    """Run a script as the main module; exceptions are shown with its own frames only."""
    sys.argv = [script, *arguments]
    sys.path[0] = os.path.dirname(os.path.abspath(script))
    try:
        runpy.run_path(script, run_name="__main__")
    except SystemExit as stop:
        if stop.code is None or isinstance(stop.code, int):
            return stop.code or 0
        print(stop.code, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    except BaseException as error:
        error = error.with_traceback(_frames_of(script, error.__traceback__))
        sys.excepthook(type(error), error, error.__traceback__)
        return 1
    return 0


def _frames_of(script: str, frames: TracebackType | None) -> TracebackType | None:
    """Frames from the first one in the script on; none where it could not even be compiled."""
    while frames is not None and frames.tb_frame.f_code.co_filename != script:
        frames = frames.tb_next
    return frames


def _leave(result: Path, recorder: Recorder, stack: contextlib.ExitStack) -> None:
    with stack:
        if not recorder.num_calls:
            return
        report = sys.modules.get("optimum_neuron.device.dynamo.report")
        compiles = report.compile_report().to_dict() if report else {}
        data = {"profile": recorder.profile().to_json(), "compiles": compiles}
        result.write_text(json.dumps(data), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4:]))
