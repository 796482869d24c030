"""Scripts and commands in the shape of Optimum Neuron's guides run unchanged, and match transformers.

`scripts/*.py` are user scripts, with names of checkpoints that `checkpoints.py` makes; they compare with the reference
models. `scripts/*.sh` are commands. Only the environment makes them cheap: NEURON_CC_FLAGS asks for -O1.
"""

from __future__ import annotations

import gc
import os
import runpy
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import transformers

from tests import sampling
from tests.device.conftest import built  # noqa: F401  (fixture)
from tests.docs.fences import Fence, commands, run_command
from tests.sdk.checkpoints import write_named

pytest.importorskip("optimum.neuron", reason="the sdk distribution is not installed")

from optimum.neuron import NeuronModelForCausalLM  # noqa: E402

SCRIPTS = Path(__file__).parent / "scripts"
ALONE = sorted(path.stem for path in SCRIPTS.glob("*.py") if not path.with_suffix(".sh").exists())
"""Scripts that no shell script runs."""


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory):
    return tmp_path_factory.mktemp("checkpoints")


@pytest.fixture
def here(checkpoints, tmp_path, monkeypatch):
    """An empty working directory next to the checkpoints."""
    (checkpoints / "acme").mkdir(exist_ok=True)
    (tmp_path / "acme").symlink_to(checkpoints / "acme")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NEURON_CC_FLAGS", "-O1")
    yield tmp_path
    gc.collect()  # models of a script keep their cores for as long as its names refer to each other


@pytest.mark.full(days=14)
@pytest.mark.parametrize("name", ALONE)
def test_script_matches_transformers(name, here, checkpoints):
    script = SCRIPTS / f"{name}.py"
    write_named(script.read_text(), checkpoints)
    if name.startswith("finetune"):
        pytest.importorskip("datasets", reason="data sets come with the extra training")
    runpy.run_path(str(script), run_name="__main__")


@pytest.mark.full(days=3)
def test_commands_write_loadable_folders(here, checkpoints, request):
    """Each day another quarter of the kinds of models; a decoder and the cache's commands, which look it up, always."""
    script = SCRIPTS / "commands.sh"
    text = script.read_text()
    write_named(text, checkpoints)
    fence = Fence(path=script, line=0, language="bash", tags=frozenset(), text=text)
    number, count = sampling.part(request, 4)
    for index, words in enumerate(commands(fence)):
        if words[0] == "export" and "acme/llama" not in words and index % count != number:
            continue
        run_command(words)
        if words[0] == "export":
            assert (here / words[-1] / "neuron_config.json").is_file()
    tokenizer = transformers.AutoTokenizer.from_pretrained("acme/llama")
    model = NeuronModelForCausalLM.from_pretrained("llama_neuron")
    original = transformers.AutoModelForCausalLM.from_pretrained("acme/llama", dtype=torch.float32)
    inputs = tokenizer("one", return_tensors="pt")
    options = {"do_sample": False, "max_new_tokens": 6}
    assert torch.equal(model.generate(**inputs, **options), original.generate(**inputs, **options))


@pytest.mark.full(days=14)
def test_shell_script_tunes_on_two_cores(here, checkpoints, built):  # noqa: F811
    peft = pytest.importorskip("peft", reason="adapters come with the extra training")
    pytest.importorskip("trl", reason="trainers come with the extra training")
    for name in ("finetune_llama.py", "finetune_llama.sh"):
        shutil.copy(SCRIPTS / name, here)
    write_named((here / "finetune_llama.sh").read_text(), checkpoints)
    bin_folder = here / "bin"
    bin_folder.mkdir()
    for name, module in (("torchrun", "torch.distributed.run"), ("optimum-cli", "optimum.commands.optimum_cli")):
        code = f"import sys; sys.argv[0] = {name!r}; from {module} import main; main()"
        (bin_folder / name).write_text(f'#!/bin/sh\nexec {sys.executable} -c {shlex.quote(code)} "$@"\n')
        (bin_folder / name).chmod(0o755)
    # Cores of a separate instance: this process may hold those of the default one.
    environment = {"OPTIMUM_NEURON_INSTANCE": "inf2.24xlarge", "OMP_NUM_THREADS": "1"}
    environment["PET_STANDALONE"] = "1"  # torchrun takes a free port, not always the same
    environment["PATH"] = f"{bin_folder}{os.pathsep}{os.environ['PATH']}"
    command = ["bash", "-eu", "finetune_llama.sh"]
    result = subprocess.run(command, env=os.environ | environment, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr[-4000:]
    base = transformers.AutoModelForCausalLM.from_pretrained("acme/llama")
    adapter_model = peft.PeftModel.from_pretrained(base, "finetuned/adapter")
    changed = [weight.abs().max() > 0 for name, weight in adapter_model.named_parameters() if "lora_B" in name]
    assert changed and all(changed)
