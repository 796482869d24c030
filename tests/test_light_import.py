"""Imports: the package is light, and every module can be the first one that is imported.

A fresh interpreter imports the third-party modules once; then each module of ours is imported in a fork of it, so that
every one is tried alone without paying for torch each time.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
HEAVY = ["accelerate", "huggingface_hub", "numpy", "optimum", "rich", "safetensors", "torch", "transformers"]

LIGHT = [
    "optimum_neuron", "optimum_neuron.buckets", "optimum_neuron.checking", "optimum_neuron.checkpoints",
    "optimum_neuron.compiler.cache", "optimum_neuron.compiler.neff", "optimum_neuron.configuration",
    "optimum_neuron.core", "optimum_neuron.env", "optimum_neuron.errors", "optimum_neuron.exporters",
    "optimum_neuron.hardware", "optimum_neuron.modeling", "optimum_neuron.pipelines", "optimum_neuron.profiling",
    "optimum_neuron.profiling.child", "optimum_neuron.profiling.script", "optimum_neuron.runtime",
    "optimum_neuron.tracing", "optimum_neuron.trainer", "optimum_neuron.trainer.post_training",
]  # fmt: skip
"""Modules that must import fast; the command line's are tested by `tests/cli/test_surface.py`."""

OF_OTHERS = [
    *("torch", "torch._inductor.compile_fx", "torch.distributed.pipelining", "torch.distributed.checkpoint"),
    *("torch.distributed.tensor.parallel", "torch.distributed.fsdp", "transformers", "transformers.trainer"),
    *("transformers.pipelines", "accelerate", "optimum.commands.base", "peft", "trl", "trl.experimental.orpo"),
]
"""Third-party imports of modules, in a possible order."""

FORKS = """
import gc, importlib, json, os, sys, traceback
preloaded, modules, heavy, bytecode = json.loads(sys.argv[1])
for name in preloaded:
    importlib.import_module(name)
gc.disable()  # it would touch, and so copy, every page in every fork
sys.pycache_prefix, sys.dont_write_bytecode = bytecode, False
assert not any(name.partition(".")[0] == "optimum_neuron" for name in sys.modules)
for module in modules:
    reader, writer = os.pipe()
    if os.fork() == 0:
        os.close(reader)
        try:
            importlib.import_module(module)
            said = {"heavy": [name for name in heavy if name in sys.modules and name not in preloaded]}
        except BaseException:
            said = {"error": traceback.format_exc()}
        os.write(writer, json.dumps(said).encode()[:60_000])
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        print(json.dumps([module, json.loads(pipe.read() or "null")]), flush=True)
    os.wait()
"""


def import_each(modules: list[str], folder: Path, *, preloaded: list[str]) -> dict[str, dict]:
    """Import each module in a fork of one fresh interpreter; report its imports, or the traceback."""
    words = json.dumps([preloaded, modules, HEAVY, str(folder)])
    # torch itself would import the device.
    environment = {**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    command = [sys.executable, "-c", FORKS, words]
    result = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert result.returncode == 0, result.stderr
    return dict(json.loads(line) for line in result.stdout.splitlines())


def all_modules() -> list[str]:
    paths = sorted((ROOT / "optimum_neuron").rglob("*.py"))
    names = [".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__") for path in paths]
    return [name for name in names if not name.endswith("__main__")]


def test_every_module_can_be_imported_first(tmp_path):
    modules = all_modules()
    assert len(modules) > 80
    result = import_each(modules, tmp_path, preloaded=OF_OTHERS)
    assert {name: messages["error"] for name, messages in result.items() if "error" in messages} == {}
    assert list(result) == modules


def test_light_modules_import_nothing_heavy(tmp_path):
    result = import_each(LIGHT, tmp_path, preloaded=[])
    assert result == {name: {"heavy": []} for name in LIGHT}


def test_check_detects_heavy_imports(tmp_path):
    module = "optimum_neuron.modeling.causal_lm"
    assert {"torch", "transformers"} <= set(import_each([module], tmp_path, preloaded=[])[module]["heavy"])
