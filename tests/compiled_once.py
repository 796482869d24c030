"""A C++ compiler for tests that compiles the same code once, whichever folder, worker, process, or run asks for it.

Tests have caches of their own, or begin with empty ones, and compile the same C++ again and again. `install` puts a
`g++` in front of PATH that keeps each result by the content of everything that it depends on, and runs the real one for
what it does not know. A header that several files begin with is precompiled: torch's take longer than generated code.
What the package does with compilers and caches is unchanged.

    python tests/compiled_once.py FOLDER RESULTS MACHINE COMPILER ARGUMENT ...

Results stay in pytest's cache folder, and a later run finds them: `pytest --cache-clear` removes them, and those that
no run has used for days go by themselves. Headers outside of this repository are not read: the key has the compiler,
the CPU, and torch (`machine`). Runs without the package.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
NAMES = ("g++", "c++")
KINDS = (".so", ".o")
"""Results that are kept."""
HEADERS = (".h", ".hpp", ".cpp")
OWN = (str(ROOT / "optimum_neuron"), tempfile.gettempdir())
"""Folders whose headers tests may change."""
BEGIN = re.compile(r'#include "([\w.]+)"\s*')
INCLUDED = re.compile(r'^[ \t]*#[ \t]*include[ \t]*"([^"]+)"', re.MULTILINE)
LINKING = ("-shared", "-l", "-L", "-Wl,", "-c")
"""Words of a command that do not concern a header."""
FEW = 2
"""Files that begin with a header before it is precompiled: that takes as long as two of them."""
KEPT_S = 14 * 24 * 3600
"""Time without a use after which a result is deleted."""


def install(folder: Path, results: Path) -> str:
    """Write the compilers to a folder that all workers share; return the PATH with them in front.

    Args:
        folder: folder of this run.
        results: folder of the results, which later runs find.
    """
    search = os.environ.get("PATH", os.defpath)
    folder.mkdir(parents=True, exist_ok=True)
    results.mkdir(parents=True, exist_ok=True)
    for old in results.iterdir():
        if time.time() - old.stat().st_mtime > KEPT_S:
            old.unlink(missing_ok=True)
    for name in NAMES:
        real = shutil.which(name, path=search)
        if real is not None:
            words = f'exec "{sys.executable}" -I -S "{Path(__file__).resolve()}" "{folder}" "{results}"'
            words += f' "{machine(real)}" "{real}" "$@"'
            written = folder / f"{name}.{os.getpid()}"
            written.write_text(f"#!/bin/sh\n{words}\n")
            written.chmod(0o755)
            written.replace(folder / name)
    return f"{folder}{os.pathsep}{search}"


def machine(compiler: str) -> str:
    """Return the hash of what a result depends on beside the command: the compiler, system headers, CPU, and torch."""
    told = [subprocess.run([compiler, "-v"], capture_output=True, text=True, check=False).stderr, *platform.uname()[4:]]
    cpu, headers = Path("/proc/cpuinfo"), Path("/usr/include")
    if cpu.is_file():
        told += sorted({line for line in cpu.read_text().splitlines() if line.startswith(("flags", "model name"))})
    # A folder of system headers, or of a torch, has a new time when a package is installed.
    packages = Path(os.__file__).parent / "site-packages", *map(Path, sys.path)
    places = [headers, Path(compiler).resolve(), *(folder / "torch" / "version.py" for folder in packages)]
    told += [f"{path} {path.stat().st_mtime_ns}" for path in dict.fromkeys(places) if path.exists()]
    return hashlib.sha256("\0".join(told).encode()).hexdigest()


def key_of(told: str, compiler: str, arguments: list[str], output: int) -> str:
    """Return the hash of a command: its words, and the content of all files that they name or include."""
    digest = hashlib.sha256(f"{told}\0{compiler}\0{Path(arguments[output]).suffix}".encode())
    folders = [Path(word[2:]) for word in arguments if word.startswith("-I")]
    for number, word in enumerate(arguments):
        path = Path(word)
        if number == output:
            continue
        if word.startswith("-I") and word[2:].startswith(OWN):
            digest.update(b"-I" + content(Path(word[2:])))
        elif not word.startswith("-") and path.is_file():
            for file in with_included(path, folders):
                digest.update(file.suffix.encode() + b"\0" + hashlib.sha256(file.read_bytes()).digest())
        else:
            digest.update(word.encode() + b"\0")
    return digest.hexdigest()


def with_included(path: Path, folders: list[Path]) -> list[Path]:
    """Return a file, and the files of this repository or of tests that it includes in quotes."""
    files = [path]
    for file in files:
        if file.suffix in HEADERS:
            for name in INCLUDED.findall(file.read_text(errors="replace")):
                found = next((place / name for place in (file.parent, *folders) if (place / name).is_file()), None)
                if found is not None and str(found.resolve()).startswith(OWN) and found.resolve() not in files:
                    files.append(found.resolve())
    return files


def content(folder: Path) -> bytes:
    """Return the hash of the headers of a folder."""
    digest = hashlib.sha256()
    for path in sorted(folder.glob("*")):
        if path.suffix in HEADERS:
            digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.digest()


def output_of(arguments: list[str]) -> int | None:
    """Return the place of the output among the arguments of a command whose result can be kept."""
    places = [number for number, word in enumerate(arguments) if word == "-o"]
    unknown = any(word.startswith(("@", "-M", "-E", "-v", "-###", "-save-temps", "-fprofile")) for word in arguments)
    if len(places) != 1 or unknown or places[0] + 1 == len(arguments):
        return None
    return places[0] + 1 if Path(arguments[places[0] + 1]).suffix in KINDS else None


def with_header(compiler: str, arguments: list[str], output: int, folder: Path) -> list[str]:
    """Return the arguments, with a folder that has the file's first header precompiled, if several files have it."""
    sources = [place for place, word in enumerate(arguments) if word.endswith(".cpp") and place != output]
    if len(sources) != 1:
        return arguments
    with open(arguments[sources[0]], errors="replace") as code:
        begin = BEGIN.fullmatch(code.readline())
    folders = [Path(word[2:]) for word in arguments if begin and word.startswith("-I")]
    header = next((path for place in folders if begin and (path := place / begin[1]).is_file()), None)
    if header is None:
        return arguments
    own = (sources[0], output - 1, output)
    flags = [word for place, word in enumerate(arguments) if place not in own and not word.startswith(LINKING)]
    digest = hashlib.sha256("\0".join([compiler, *flags, header.name]).encode() + content(header.parent)).hexdigest()
    made = folder / digest
    made.mkdir(parents=True, exist_ok=True)
    compiled, part = made / f"{header.name}.gch", made / "part"
    with open(made / "uses", "a") as uses:
        fcntl.flock(uses, fcntl.LOCK_EX)
        if not compiled.exists():
            print(os.getpid(), file=uses, flush=True)
            if (made / "uses").read_text().count("\n") <= FEW:
                return arguments
            words = [compiler, *flags, "-x", "c++-header", str(header), "-o", str(part)]
            if subprocess.run(words, capture_output=True, check=False).returncode:
                return arguments
            part.rename(compiled)
    return [f"-I{made}", *arguments]


def main() -> int:
    """Compile, or copy the result of the same command."""
    folder, results, told, compiler, *arguments = sys.argv[1:]
    output = output_of(arguments)
    if output is None:
        os.execv(compiler, [compiler, *arguments])
    Path(results).mkdir(exist_ok=True)
    kept, target = Path(results, key_of(told, compiler, arguments, output)), Path(arguments[output])
    with open(f"{kept}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not kept.exists():
            words = with_header(compiler, arguments, output, Path(folder, "headers"))
            code = subprocess.run([compiler, *words], check=False).returncode
            if code or not target.is_file():
                return code
            shutil.copy(target, f"{kept}.part")
            os.replace(f"{kept}.part", kept)
            return 0
    shutil.copy(kept, target)
    os.utime(kept)
    return 0


if __name__ == "__main__":
    sys.exit(main())
