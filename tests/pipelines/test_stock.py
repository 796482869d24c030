"""transformers' own `pipeline` of an exported folder: the compiled model runs, or an error says why not."""

from __future__ import annotations

import importlib
import os
import shutil
import subprocess
import sys

import pytest
import torch
import transformers

from optimum_neuron import NeuronModelForCausalLM
from optimum_neuron.base.after_import import after_import
from optimum_neuron.errors import ArtifactError, ConfigError, ModelError, NeuronError
from tests.encoders import save_letters, save_tiny_encoder

OPTIONS = {"do_sample": False, "max_new_tokens": 8}
PROGRAM = """
import sys
{first}
from transformers import pipeline
run = pipeline("text-generation", sys.argv[1])
print(type(run.model).__module__, run("Hello", do_sample=False, max_new_tokens=8)[0]["generated_text"].encode())
"""


@pytest.mark.full(days=4)
@pytest.mark.parametrize(("first", "autoload"), [("", "1"), ("from optimum_neuron import NeuronModelForCausalLM", "0")])
def test_transformers_only_script(export_folder, checkpoint, tmp_path, first, autoload):
    command = [sys.executable, "-c", PROGRAM.format(first=first), str(export_folder)]
    # Separate cores: this process may hold all others.
    variables = {"TORCH_DEVICE_BACKEND_AUTOLOAD": autoload, "OPTIMUM_NEURON_HOME": str(tmp_path)}
    result = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, **variables})
    expected = transformers.pipeline("text-generation", str(checkpoint))("Hello", **OPTIONS)[0]["generated_text"]
    assert result.stdout.strip() == f"optimum_neuron.modeling.causal_lm {expected.encode()}", result.stderr


def test_plain_checkpoint_is_run_by_transformers(checkpoint):
    run = transformers.pipeline("text-generation", str(checkpoint), dtype=torch.bfloat16)
    assert type(run.model) is transformers.LlamaForCausalLM and run.model.dtype == torch.bfloat16
    assert not hasattr(transformers.AutoModelForCausalLM, "_loads_exports")


def test_encoder(tmp_path):
    from optimum_neuron import NeuronModelForSequenceClassification

    folder = save_letters(save_tiny_encoder(tmp_path / "bert", "bert", "text-classification"))
    shapes = {"sequence_length": 16, "batch_size": 1, "optlevel": "1"}
    with NeuronModelForSequenceClassification.from_pretrained(folder, export=True, **shapes) as model:
        model.save_pretrained(tmp_path / "exported")
    run = transformers.pipeline("sentiment-analysis", str(tmp_path / "exported"))
    assert type(run.model) is NeuronModelForSequenceClassification
    expected = transformers.pipeline("sentiment-analysis", str(folder))("abc")[0]["score"]
    assert run("abc")[0]["score"] == pytest.approx(expected)
    run.model.close()


def refused(task, folder, **options):
    with pytest.raises(NeuronError) as error:
        transformers.pipeline(task, str(folder), **options)
    return error.value


def test_export_for_another_task_is_error(export_folder):
    error = refused("text-classification", export_folder)
    assert isinstance(error.__cause__, ModelError)
    assert error.details == {"pipeline": "text-classification", "task": "text-generation"}


def test_unloadable_export_does_not_fall_back_to_transformers(export_folder, tmp_path):
    assert isinstance(refused("text-generation", export_folder, dtype=torch.bfloat16).__cause__, ConfigError)
    folder = shutil.copytree(export_folder, tmp_path / "broken")
    (folder / "model.neuron").unlink()
    assert isinstance(refused("text-generation", folder).__cause__, ArtifactError)


def test_export_options_can_be_repeated(export_folder):
    run = transformers.pipeline("text-generation", str(export_folder), dtype="float32", device="cpu")
    assert type(run.model) is NeuronModelForCausalLM
    run.model.close()


def test_action_waits_for_its_module(tmp_path, monkeypatch):
    """Also for one that is being imported: it has not run yet."""
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "waited_for.py").write_text("value = 1")
    (tmp_path / "in_the_middle.py").write_text("import calls_back\nvalue = 2")
    (tmp_path / "calls_back.py").write_text(
        "from optimum_neuron.base.after_import import after_import\n"
        "seen = []\n"
        "after_import('in_the_middle', lambda module: seen.append(module.value))\n"
    )
    (tmp_path / "anything_else.py").write_text("")
    values, finders = [], len(sys.meta_path)
    after_import("waited_for", lambda module: values.append(module.value))
    assert values == []
    module = importlib.import_module("waited_for")
    after_import("waited_for", lambda found: values.append(found is module))
    assert values == [1, True]
    importlib.import_module("in_the_middle")
    importlib.import_module("anything_else")
    assert importlib.import_module("calls_back").seen == [2] and len(sys.meta_path) == finders
