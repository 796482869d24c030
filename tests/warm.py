"""Programs that start in milliseconds: each is a fork of one process that has imported what tests import.

    result = run("-c", "import torch; print(torch.ones(2, device='neuron'))", env={**os.environ, "LOCAL_RANK": "0"})
    assert result.returncode == 0, result.stderr

One process serves all workers of a test run, and ends with it. A program has its own arguments, environment, folder,
and streams, but what libraries read from the environment when they are imported is that of the test run: a test whose
subject is the start of a process, or an import, starts Python.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import threading
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
FOLDER = "TEST_RUN_FOLDER"
"""Variable that names the folder of a test run, for its workers."""
SEPARATE_INSTANCE = {"gw1": "trn1.32xlarge"}.get(os.environ.get("PYTEST_XDIST_WORKER", ""), "trn1n.32xlarge")
"""Instance of programs that tests start: no test worker holds its first cores, nor does a program of another one."""
_SOCKET, _ENVIRONMENT, _LOCK = "warm.socket", "environment.json", "warm.lock"


class Fork:
    """A running fork, and how it ended."""

    def __init__(self, words: tuple[str, ...], streams: list[int], env: Mapping[str, str] | None, cwd: Path | str):
        self.args = list(words)
        self.returncode: int | None = None
        self._connection = _connected()
        request = {"words": words, "env": dict(os.environ if env is None else env), "cwd": str(cwd)}
        body = json.dumps(request).encode()
        socket.send_fds(self._connection, [len(body).to_bytes(8, "big")], streams)
        self._connection.sendall(body)
        for stream in streams:
            os.close(stream)
        self._answers = self._connection.makefile()
        self._waits = threading.Lock()
        self.pid = int(self._answers.readline())

    def wait(self) -> int:
        """Return the exit code, at the end; several threads may wait."""
        with self._waits:
            if self.returncode is None:
                self.returncode = int(self._answers.readline())
                self._answers.close()
                self._connection.close()
        return self.returncode

    def poll(self) -> int | None:
        """Return the exit code, if it has ended."""
        if self._waits.acquire(blocking=False):  # a thread that waits knows it first
            has_ended = self.returncode is None and select.select([self._connection], [], [], 0)[0]
            self._waits.release()
            if has_ended:
                self.wait()
        return self.returncode

    def kill(self) -> None:
        """End it, if it has not ended."""
        if self.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)


class Served(Fork):
    """A fork that answers requests, one per line, in its own process group, like a `subprocess.Popen`."""

    def __init__(self, *words: str, env: Mapping[str, str] | None = None) -> None:
        (asked, ask), (answers, answer) = os.pipe(), os.pipe()
        super().__init__(words, [answer, os.open(os.devnull, os.O_WRONLY), asked], env, ROOT)
        self.stdin, self.stdout = os.fdopen(ask, "w"), os.fdopen(answers)


class Program(Fork):
    """A running fork whose output is collected."""

    def __init__(self, *words: str, env: Mapping[str, str] | None = None, cwd: Path | str = ROOT) -> None:
        pipes = [os.pipe() for _ in range(2)]
        super().__init__(words, [write for _, write in pipes], env, cwd)
        self._read = [os.fdopen(read, errors="replace") for read, _ in pipes]
        self._texts = ["", ""]
        self._readers = [threading.Thread(target=self._collect, args=(number,), daemon=True) for number in range(2)]
        for reader in self._readers:
            reader.start()

    def _collect(self, number: int) -> None:
        with self._read[number] as stream:
            self._texts[number] = stream.read()

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """Return what the program prints to both streams until it ends."""
        for reader in self._readers:
            reader.join(timeout)
            if reader.is_alive():
                raise subprocess.TimeoutExpired(self.args, timeout or 0)
        self.wait()
        return self._texts[0], self._texts[1]


def run(*words: str, env: Mapping[str, str] | None = None, cwd: Path | str = ROOT) -> subprocess.CompletedProcess[str]:
    """Run Python with these words, as `subprocess.run` does: `-c PROGRAM`, `-m MODULE`, or a file, and arguments."""
    program = Program(*words, env=env, cwd=cwd)
    stdout, stderr = program.communicate()
    assert program.returncode is not None
    return subprocess.CompletedProcess(program.args, program.returncode, stdout, stderr)


def run_ranks(
    *words: str, num_processes: int, told: tuple[str, ...] = ("RANK", "LOCAL_RANK"), **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run a module as the processes of a launch on this machine; the first exit code that is not 0 is the result's.

    Args:
        words: as for `run`.
        num_processes: number of processes.
        told: variables that tell each its number.
        variables: others, the same for all.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    common = {**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "OMP_NUM_THREADS": "1", **variables}
    common["WORLD_SIZE"] = str(num_processes)
    if "LOCAL_RANK" in told:
        common["LOCAL_WORLD_SIZE"] = str(num_processes)
    programs = [Program(*words, env=common | dict.fromkeys(told, str(rank))) for rank in range(num_processes)]
    try:
        texts = [program.communicate(timeout=600) for program in programs]
    finally:
        for program in programs:
            program.kill()
    stdout, stderr = ("".join(streams) for streams in zip(*texts, strict=True))
    code = next((program.returncode for program in programs if program.returncode), 0)
    return subprocess.CompletedProcess(list(words), code, stdout, stderr)


def prepare(folder: Path) -> None:
    """Keep the environment of a test run before a test changes it."""
    os.environ[FOLDER] = str(folder)
    (folder / _ENVIRONMENT).write_text(json.dumps(dict(os.environ)))


def _connected() -> socket.socket:
    """Connect to the process of this run; the first caller starts it."""
    from filelock import FileLock

    folder = Path(os.environ[FOLDER])
    with FileLock(folder / _LOCK):
        for is_second in (False, True):
            connection = socket.socket(socket.AF_UNIX)
            try:
                connection.connect(str(folder / _SOCKET))
                return connection
            except OSError:  # nobody has started it, or who did has crashed
                connection.close()
                if is_second:
                    raise
                _start(folder)
    raise AssertionError("unreachable")


def _start(folder: Path) -> None:
    environment = json.loads((folder / _ENVIRONMENT).read_text())
    server = subprocess.Popen(
        [sys.executable, "-m", "tests.warm", str(folder)],
        cwd=ROOT,
        env=environment | {"OMP_NUM_THREADS": "1"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    atexit.register(_end, server, os.getpid())
    assert server.stdout is not None and server.stdout.readline() == "ready\n", "the process of warm programs failed"


def _end(server: subprocess.Popen[str], owner: int) -> None:
    if os.getpid() == owner:  # not in a fork of a test
        server.kill()
        server.communicate()


def _import() -> None:
    """Import what programs of tests import, without using it: threads and devices do not survive a fork."""
    import accelerate  # noqa: F401
    import torch
    import torch.distributed.checkpoint  # noqa: F401
    import torch.distributed.fsdp  # noqa: F401
    import torch.distributed.tensor.parallel  # noqa: F401
    from transformers import (  # noqa: F401  # noqa: F401
        AutoModelForCausalLM,
        AutoTokenizer,
        BertForSequenceClassification,
        LlamaForCausalLM,
        Trainer,
        TrainingArguments,
        pipeline,
    )

    from optimum_neuron import NeuronModelForCausalLM, NeuronTrainer  # noqa: F401
    from tests.trainer import conftest  # noqa: F401

    with contextlib.suppress(ImportError):
        import peft  # noqa: F401
    # What every fork that compiles would import: the first export imports it.
    torch.export.export(torch.nn.Identity(), (torch.zeros(1),))


def _serve(folder: Path) -> dict[str, Any]:
    """Fork for each request; return in the fork that runs its program, with the request."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(folder / f"{_SOCKET}.new"))
    listener.listen(64)
    (folder / f"{_SOCKET}.new").rename(folder / _SOCKET)
    print("ready", flush=True)
    parent = os.getppid()
    listener.settimeout(1.0)
    while os.getppid() == parent:
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        try:
            connection, _ = listener.accept()
        except TimeoutError:
            continue
        if os.fork() == 0:
            listener.close()
            connection.settimeout(None)
            return _watch(connection)
        connection.close()
    sys.exit()


def _watch(connection: socket.socket) -> dict[str, Any]:
    """Fork the program and report its process and exit code; return in the program."""
    size, streams, _, _ = socket.recv_fds(connection, 8, 3)
    body = b""
    while len(body) < int.from_bytes(size, "big"):
        body += connection.recv(1 << 20)
    pid = os.fork()
    if pid == 0:
        connection.close()
        for number, stream in zip((1, 2, 0), streams, strict=False):
            os.dup2(stream, number)
            os.close(stream)
        request: dict[str, Any] = json.loads(body)
        return request
    for stream in streams:
        os.close(stream)
    os.setpgid(pid, pid)
    with contextlib.suppress(BrokenPipeError):
        connection.sendall(b"%d\n" % pid)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        connection.sendall(b"%d\n" % code)
    os._exit(0)


def _become(words: list[str], env: dict[str, str], cwd: str) -> None:
    """Run a program in this process, as `python WORDS` would."""
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    sys.path[:0] = [folder for folder in env.get("PYTHONPATH", "").split(os.pathsep) if folder]
    kind, *rest = words
    if kind == "-c":
        sys.argv = ["-c", *rest[1:]]
        sys.path.insert(0, "")
        main = type(sys)("__main__")
        sys.modules["__main__"] = main
        exec(compile(rest[0], "<string>", "exec"), vars(main))
    elif kind == "-m":
        sys.argv = ["-m", *rest[1:]]
        sys.path.insert(0, cwd)
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    else:
        sys.argv = words
        sys.path.insert(0, str(Path(kind).parent))
        runpy.run_path(kind, run_name="__main__")


if __name__ == "__main__":
    _import()
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 10, 10)  # as in the processes of tests
    try:
        _become(**_serve(Path(sys.argv[1])))
    except Exception:
        traceback.print_exc()
        sys.exit(1)
