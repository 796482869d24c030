"""One new file is a new instruction: functions, enumerations, costs, the page, and streams take it from the class."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
INSTRUCTION = '''"""Limits of elements."""

from __future__ import annotations

import enum

from ..core import Core
from ..cost import ASSUMED
from ..tensor import NkiTensor
from . import rules
from .base import Engine, Instruction, instruction


class ClampMode(enum.Enum):
    low = 0
    high = 1


@instruction(ASSUMED)
class TensorClamp(Instruction):
    """Limit elements from one side."""

    ENGINES = (Engine.vector, Engine.gpsimd)

    dst: NkiTensor
    src: NkiTensor
    limit: float
    mode: ClampMode = ClampMode.low
    engine: Engine = Engine.unknown

    def check(self, core: Core) -> None:
        rules.same_size(self.OPCODE, src=self.src, dst=self.dst)

    def run(self, core: Core) -> None:
        limits = {"min": self.limit} if self.mode is ClampMode.low else {"max": self.limit}
        self.dst.write(self.src.floats().clamp(**limits))
'''
SCRIPT = """
import importlib.util
import inspect
import sys

import torch

spec = importlib.util.find_spec("optimum_neuron.nki.instructions")
spec.submodule_search_locations.append(sys.argv[1])
package = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(package)

from optimum_neuron.errors import KernelError
from optimum_neuron.hardware import resolve_target
from optimum_neuron.nki import COSTS, analyze, isa as nisa, jit, language as nl, streams
from tools.fidelity.nki_report import costs

assert str(inspect.signature(nisa.tensor_clamp)).startswith("(dst: 'NkiTensor', src: 'NkiTensor', limit: 'float', mode")
assert nisa.tensor_clamp.__doc__ == "Limit elements from one side." and "clamp_mode" in nisa.__all__


@jit
def kernel(x):
    tile, out = nl.load(x), nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    nisa.tensor_clamp(tile, tile, 0.5, mode=nisa.clamp_mode.high)
    nl.store(out, tile)
    return out


@jit
def wrong(x):
    nisa.tensor_clamp(nl.ndarray((128, 4), nl.float32), nl.load(x), 0.5)


x = torch.randn(128, 512)
assert torch.equal(kernel(x), x.clamp(max=0.5))
(record,) = [event.record for event in analyze(kernel, x).events if event.record.opcode == "tensor_clamp"]
assert (record.engine, record.cycles) == ("vector", 512)
try:
    wrong(x)
except KernelError as error:
    assert (error.details["rule"], error.details["instruction"]) == ("shape", "tensor_clamp")
else:
    raise AssertionError("tiles of different sizes were taken")

assert COSTS["tensor_clamp"].formula == "max(64, N); gpsimd: 150 + N" and not COSTS["tensor_clamp"].is_published
assert "| `tensor_clamp` | vector, gpsimd | max(64, N); gpsimd: 150 + N |" in costs()

stream = streams.decode(streams.encode(streams.trace(kernel, (x,), {}).stream), {})
streams.verify(stream, resolve_target("trn2").value)
assert torch.equal(streams.run(stream, [x])[0], x.clamp(max=0.5))
"""


def test_one_file_is_an_instruction(tmp_path):
    (tmp_path / "clamp.py").write_text(INSTRUCTION)
    done = subprocess.run([sys.executable, "-c", SCRIPT, str(tmp_path)], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
