"""Warm programs are as separate as processes that Python starts, and have imported what takes time."""

from __future__ import annotations

import concurrent.futures
import os
import subprocess
import sys

import pytest

from tests import warm

PROGRAM = """
import json, os, sys, __main__
print(json.dumps([sys.argv, os.environ.get("MARK"), os.getcwd(), sorted(set(vars(__main__)) - {"__builtins__"})]))
print("to stderr", file=sys.stderr)
sys.exit(3)
"""


def test_words_environment_folder_streams_and_exit_code_are_those_of_python(tmp_path):
    environment = {**os.environ, "MARK": "here"}
    actual = warm.run("-c", PROGRAM, "one", env=environment, cwd=tmp_path)
    command = [sys.executable, "-c", PROGRAM, "one"]
    expected = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
    for result in (actual, expected):
        result.names = set(eval(result.stdout.replace("null", "None"))[3])
    assert actual.stdout.rpartition(", [")[0] == expected.stdout.rpartition(", [")[0]
    assert {"json", "os", "sys"} <= actual.names
    assert (actual.returncode, actual.stderr) == (expected.returncode, expected.stderr) == (3, "to stderr\n")


def test_files_and_modules_run(tmp_path):
    (tmp_path / "beside.py").write_text("NUMBER = 7\n")
    (tmp_path / "script.py").write_text("import sys, beside\nprint(__name__, beside.NUMBER, sys.argv[1:])\n")
    assert warm.run(str(tmp_path / "script.py"), "a").stdout == "__main__ 7 ['a']\n"
    assert warm.run("-m", "script", "b", cwd=tmp_path).stdout == "__main__ 7 ['b']\n"


def test_what_takes_time_is_imported():
    program = "import sys\nprint({'torch', 'transformers', 'accelerate', 'optimum_neuron'} <= set(sys.modules))"
    assert warm.run("-c", program).stdout == "True\n"


def test_programs_do_not_see_each_other(tmp_path):
    first, second = (warm.Program("-c", f"import os; os.environ['A'] = '{n}'; print(os.getpid())") for n in range(2))
    pids = {first.communicate()[0], second.communicate()[0]}
    assert len(pids) == 2 and warm.run("-c", "import os; print(os.environ.get('A'))").stdout == "None\n"


def test_errors_and_crashes_are_exit_codes():
    failed = warm.run("-c", "raise MemoryError('no memory')")
    assert failed.returncode == 1 and "MemoryError: no memory" in failed.stderr
    assert warm.run("-c", "import os; os.kill(os.getpid(), 9)").returncode == -9


def test_running_program_is_killed():
    program = warm.Program("-c", "import time; print('begun', flush=True); time.sleep(60)")
    with pytest.raises(subprocess.TimeoutExpired):
        program.communicate(timeout=0.5)
    program.kill()
    assert program.wait() == -9


def test_served_program_answers_and_several_threads_wait_for_its_end():
    program = "import sys\nfor line in sys.stdin: print(line.upper(), end='', flush=True)\nsys.exit(4)"
    served = warm.Served("-c", program)
    served.stdin.write("one\n")
    served.stdin.flush()
    assert served.stdout.readline() == "ONE\n" and served.poll() is None
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        ends = [pool.submit(served.wait) for _ in range(4)]
        served.stdin.close()
        assert [end.result(60) for end in ends] == [4] * 4 and served.poll() == 4
    served.stdout.close()
