"""The compiler of a test run: results are those of the real one, and every changed byte is compiled again."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests import compiled_once

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="no C++ compiler on this machine")
CODE = '#include "number.h"\nextern "C" int answer() { return NUMBER; }\n'


@pytest.fixture
def build(tmp_path):
    """Return a function that compiles code in a new folder, and returns its answer and whether a compiler ran."""
    results = tmp_path / "results"

    def run(code=CODE, number=7, flags=("-O0",)):
        folder = Path(tempfile.mkdtemp(dir=tmp_path))
        (folder / "code.cpp").write_text(code)
        (folder / "number.h").write_text(f"#define NUMBER {number}\n")
        before = len(list(results.glob("*"))) if results.exists() else 0
        compiler = shutil.which("g++")
        words = [sys.executable, "-I", "-S", compiled_once.__file__, str(tmp_path), str(results), "here", compiler]
        words += [*flags, "-fPIC", "-shared", f"-I{folder}", str(folder / "code.cpp"), "-o", str(folder / "code.so")]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        if done.returncode:
            return done.stderr
        return ctypes.CDLL(str(folder / "code.so")).answer(), len(list(results.glob("*"))) > before

    return run


def test_same_content_is_compiled_once_and_every_change_again(build):
    assert build() == (7, True) and build() == (7, False)
    assert build(number=8) == (8, True), "a header has changed"
    assert build(CODE.replace("NUMBER;", "NUMBER + 1;")) == (8, True), "the code has changed"
    assert build(flags=("-O1",)) == (7, True), "a flag has changed"


def test_header_that_files_begin_with_is_compiled_once(tmp_path):
    folder, headers = tmp_path / "include", tmp_path / "headers"
    folder.mkdir()

    def answer(number, factor):
        (folder / "start.h").write_text(f"#ifdef NUMBER\n#error twice\n#endif\n#define NUMBER {number}\n")
        code, library = tmp_path / "code.cpp", tmp_path / f"code{number}{factor}.so"
        code.write_text(f'#include "start.h"\nextern "C" int answer() {{ return NUMBER * {factor}; }}\n')
        program = [sys.executable, "-I", "-S", compiled_once.__file__, str(tmp_path), str(tmp_path / "results")]
        words = [*program, "here", shutil.which("g++")]
        words += ["-O0", "-fPIC", "-shared", f"-I{folder}", str(code), "-o", str(library)]
        subprocess.run(words, check=True)
        return ctypes.CDLL(str(library)).answer(), len(list(headers.glob("*/start.h.gch")))

    number_compiled = [answer(3, factor) for factor in range(1, 5)]
    assert number_compiled == [(3 * factor, factor > compiled_once.FEW) for factor in range(1, 5)]
    assert [answer(4, factor) for factor in range(1, 5)][-1] == (16, 2), "a header has changed"
    for compiled in headers.glob("*/start.h.gch"):
        compiled.write_bytes(b"damaged")
    assert answer(3, 9)[0] == 27, "the compiler reads the header itself"


def test_headers_of_other_folders_are_part_of_a_source(tmp_path):
    """As in csrc/xla/xla.cpp, whose headers are in the folder above."""
    (tmp_path / "xla").mkdir()
    source, outer, inner = tmp_path / "xla" / "xla.cpp", tmp_path / "outer.h", tmp_path / "inner.h"
    keys = []
    for text in ('#include "../outer.h"\n', '#include "../outer.h"\n// more\n'):
        source.write_text(text)
        for content in ("", "// another\n"):
            outer.write_text(f'  # include "inner.h"\n{content}')
            for number in (1, 2):
                inner.write_text(f"#define NUMBER {number}\n")
                keys.append(compiled_once.key_of("here", "g++", [str(source), "-o", "a.so"], 2))
    assert len({*keys}) == 8
    assert compiled_once.key_of("elsewhere", "g++", [str(source), "-o", "a.so"], 2) not in keys
    (tmp_path / "unrelated.h").write_text("")
    assert compiled_once.key_of("here", "g++", [str(source), "-o", "a.so"], 2) == keys[-1]


def test_another_compiler_or_torch_is_another_machine(tmp_path, monkeypatch):
    (tmp_path / "torch").mkdir()
    version = tmp_path / "torch" / "version.py"
    version.write_text("a")
    monkeypatch.syspath_prepend(str(tmp_path))
    before = compiled_once.machine(shutil.which("g++"))
    assert compiled_once.machine(shutil.which("g++")) == before
    os.utime(version, (1, 1))
    assert compiled_once.machine(shutil.which("g++")) != before
    assert compiled_once.machine(shutil.which("gcc")) != compiled_once.machine(shutil.which("g++"))


def test_results_of_weeks_ago_are_deleted(tmp_path):
    old, new = tmp_path / "results" / "old", tmp_path / "results" / "new"
    old.parent.mkdir()
    for path in (old, new):
        path.touch()
    os.utime(old, (1, 1))
    compiled_once.install(tmp_path / "compilers", tmp_path / "results")
    assert [*old.parent.iterdir()] == [new]


def test_errors_are_the_compilers_and_are_not_kept(build):
    assert "error" in build("int answer( {")
    assert "error" in build("int answer( {")


def test_compilers_of_this_run_are_in_front(pytestconfig):
    folder = Path(pytestconfig.option.run_folder, "compilers")
    assert shutil.which("g++") == str(folder / "g++")
    told = subprocess.run(["g++", "--version"], capture_output=True, text=True, check=True).stdout
    elsewhere = os.pathsep.join(os.environ["PATH"].split(os.pathsep)[1:])
    assert (
        told
        == subprocess.run([shutil.which("g++", path=elsewhere), "--version"], capture_output=True, text=True).stdout
    )


@pytest.mark.parametrize(
    "words",
    [["--version"], ["-E", "a.cpp", "-o", "a.o"], ["a.cpp", "-o"], ["a.cpp", "-o", "a"], ["@file", "-o", "a.o"]],
)
def test_unknown_commands_go_to_the_real_compiler(words):
    assert compiled_once.output_of(words) is None
