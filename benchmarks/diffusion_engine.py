"""One engine with one model of `diffusion_models` in a process of its own: its memory is that of this engine alone.

`Engine` starts the process, which runs this module, in a Python that may have other packages. It reads lines, and
answers each with a line: "time" with the milliseconds of a call, "facts" with an object.

    with Engine("ours", "unet", folder, dtype="bfloat16") as engine:
        milliseconds = engine.time()
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

from .diffusion_models import inputs_of, load_model, method_of

RESULT_FILE = "{}.pt"
"""What an engine computes, in the folder of the model."""
EXPORTED = "neuron"
"""Folder in it of the compiled model."""


class Engine:
    """An engine in a separate process; `close` ends it."""

    def __init__(self, engine: str, model: str, folder: Path, *, dtype: str, python: str = sys.executable) -> None:
        """Start the process; it is ready when `wait` returns."""
        root = Path(__file__).parents[1]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(root), os.environ.get("PYTHONPATH", "")])}
        command = [python, "-m", f"{__package__}.diffusion_engine", engine, model, str(folder), dtype]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment, cwd=root
        )
        self.result_file = folder / RESULT_FILE.format(engine)

    def wait(self) -> None:
        """Wait until the model is ready and has run once."""
        self._read()

    def time(self) -> float:
        """Milliseconds of one call."""
        return float(self._ask("time"))

    def facts(self) -> dict[str, float]:
        """What the process has measured of itself."""
        return json.loads(self._ask("facts"))

    def close(self) -> None:
        """End the process."""
        self._process.communicate()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _ask(self, what: str) -> str:
        assert self._process.stdin is not None
        print(what, file=self._process.stdin, flush=True)
        return self._read()

    def _read(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the process of an engine ended with code {self._process.wait()}; see above")
        return line


Call = Callable[[], Any]
"""Runs the model once, and returns the tensor of its result."""


def _export(model: str, folder: Path, dtype: str) -> tuple[Call, dict[str, float]]:
    """Not an engine: it compiles the model as pipelines compile their parts, and saves it for ours."""
    from optimum_neuron.engine import Call as EntryPoint, Leaf
    from optimum_neuron.exporters import neuron_config, prepare, save_folder
    from optimum_neuron.kinds.diffusion import CallRecorder, part_name
    from optimum_neuron.sources import DiffusersConfig, ModelSource
    from optimum_neuron.sources.pipelines import empty_component

    method, inputs = method_of(model), inputs_of(model, dtype=dtype) | {"return_dict": False}
    config = DiffusersConfig(json.loads((folder / "config.json").read_text()))
    source = ModelSource(name=model, folder=folder, config=config, revision=None)
    recorder = CallRecorder(empty_component(source, dtype), model, order=[])
    recorder(method, inputs)
    (noted,) = recorder.calls
    inside, outside = (
        tuple(Leaf(name=name, dtype=kind, shape=shape) for name, kind, shape in places)
        for places in (noted.inputs, noted.outputs)
    )
    call = EntryPoint(
        graph=method, method=method, arguments=noted.arguments, inputs=inside, result=noted.result, outputs=outside
    )
    facts = {}
    for optlevel in ("1", "2"):
        made, target = neuron_config(source, {"task": "text-to-image", "optlevel": optlevel, "torch_dtype": dtype})
        made = dataclasses.replace(made, component=part_name(model, method), calls=(call.to_dict(),))
        start = time.perf_counter()
        part = prepare(source, made, target, cache=None, validate=False, host_code="wait")
        facts[f"-O{optlevel}"] = time.perf_counter() - start
    save_folder(part, folder / EXPORTED)
    return lambda: None, facts


def _ours(model: str, folder: Path, dtype: str) -> tuple[Call, dict[str, float]]:
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode

    from optimum_neuron.engine import Call as EntryPoint, Calls
    from optimum_neuron.exporters import load_exported
    from optimum_neuron.runtime import Copies

    before = _peak_bytes()
    FakeTensorMode()  # it imports parts of torch that every load needs, whatever the model
    with_libraries = _peak_bytes()
    part = load_exported(folder / EXPORTED, {}, name=model, host_code="wait")
    assert part.loaded is not None
    calls = Calls(Copies([part.loaded]), [EntryPoint.from_dict(row) for row in part.metadata["calls"]])
    inputs = inputs_of(model, dtype=dtype) | {"return_dict": False}
    with torch.no_grad():
        calls(method_of(model), inputs)
    peak, need = _peak_bytes(), {"weights": part.need.weights, "activations": part.need.scratch}
    facts: dict[str, float] = {"peak": peak - with_libraries, "libraries": with_libraries - before, **need}
    return lambda: calls(method_of(model), inputs)[0], facts


def _eager(model: str, folder: Path, dtype: str) -> tuple[Call, dict[str, float]]:
    import torch

    stock, inputs = load_model(model, folder, dtype=dtype), inputs_of(model, dtype=dtype)
    method = getattr(stock, method_of(model))
    return torch.no_grad()(lambda: method(**inputs, return_dict=False)[0]), {}


def _openvino(model: str, folder: Path, dtype: str) -> tuple[Call, dict[str, float]]:
    import openvino
    import torch

    inputs = inputs_of(model, dtype="float32")

    class Positional(torch.nn.Module):
        def __init__(self, stock: Any) -> None:
            super().__init__()
            self.model = stock

        def forward(self, *tensors: torch.Tensor) -> torch.Tensor:
            arguments = dict(zip(inputs, tensors, strict=True))
            return getattr(self.model, method_of(model))(**arguments, return_dict=False)[0]

    with torch.no_grad():
        positional = Positional(load_model(model, folder, dtype="float32")).eval()
        program = openvino.convert_model(torch.export.export(positional, tuple(inputs.values())))
        del positional
    options = {
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_PRECISION_HINT": "bf16" if dtype == "bfloat16" else "f32",
        "INFERENCE_NUM_THREADS": torch.get_num_threads(),
    }
    request = openvino.Core().compile_model(program, "CPU", options).create_infer_request()
    feed = [tensor.numpy() for tensor in inputs.values()][: len(request.input_tensors)]
    return lambda: torch.as_tensor(next(iter(request.infer(feed, share_inputs=True).values()))), {}


_ENGINES = {"export": _export, "ours": _ours, "eager": _eager, "OpenVINO": _openvino}


def _peak_bytes() -> int:
    return 1024 * int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0])


def _serve(engine: str, model: str, folder: str, dtype: str) -> None:
    import torch

    answers = sys.stdout
    with contextlib.redirect_stdout(sys.stderr):
        call, facts = _ENGINES[engine](model, Path(folder), dtype)
        torch.save(call(), Path(folder) / RESULT_FILE.format(engine))
    print("ready", file=answers, flush=True)
    for line in sys.stdin:
        start = time.perf_counter()
        if line.strip() == "time":
            call()
            print(1e3 * (time.perf_counter() - start), file=answers, flush=True)
        else:
            print(json.dumps(facts), file=answers, flush=True)


if __name__ == "__main__":
    _serve(*sys.argv[1:])
