"""Export configurations and cache entries of Optimum Neuron: what scripts look up and describe with them."""

from __future__ import annotations

import logging
import runpy
import sys

import pytest
from transformers import BertConfig

pytest.importorskip("optimum.neuron", reason="the sdk distribution is not installed")


@pytest.mark.parametrize("task", ["fill-mask", "question-answering"])
def test_tasks_manager_knows_architectures_of_neuron(task):
    from optimum.exporters.neuron import model_configs
    from optimum.exporters.neuron.config import TextEncoderNeuronConfig
    from optimum.exporters.tasks import TasksManager

    assert "TextEncoderNeuronConfig" in model_configs.__all__
    tasks = TasksManager.get_supported_tasks_for_model_type("distilbert", "neuron", library_name="transformers")
    config = tasks[task](BertConfig(), batch_size=2)
    assert isinstance(config, TextEncoderNeuronConfig)
    assert (config.task, config.shapes) == (task, {"batch_size": 2})
    images = TasksManager.get_supported_tasks_for_model_type("yolos", "neuron", library_name="transformers")
    decoder = TasksManager.get_supported_tasks_for_model_type("phi", "neuron", library_name="transformers")
    assert "feature-extraction" in decoder and "text-generation" not in decoder  # as in Optimum Neuron
    assert "width" in images["object-detection"](BertConfig()).mandatory_axes


def test_own_configuration_is_registered_and_reported(caplog):
    from optimum.exporters.neuron.config import TextEncoderNeuronConfig
    from optimum.exporters.neuron.model_configs import register_in_tasks_manager
    from optimum.exporters.tasks import TasksManager

    caplog.set_level(logging.INFO)

    @register_in_tasks_manager("architecture_of_this_test", "feature-extraction")
    class OwnNeuronConfig(TextEncoderNeuronConfig):
        ATOL_FOR_VALIDATION = 1e-3

    assert "OwnNeuronConfig" in caplog.text
    tasks = TasksManager.get_supported_tasks_for_model_type(
        "architecture_of_this_test", "neuron", library_name="transformers"
    )
    assert tasks["feature-extraction"](BertConfig()).ATOL_FOR_VALIDATION == 1e-3


def test_module_is_the_command(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["optimum.exporters.neuron", "--help"])
    monkeypatch.delitem(sys.modules, "optimum.exporters.neuron.__main__", raising=False)
    with pytest.raises(SystemExit) as excinfo:
        runpy.run_module("optimum.exporters.neuron", run_name="__main__")
    assert excinfo.value.code == 0 and "--sequence_length" in capsys.readouterr().out


def test_training_loop_with_a_cache(tmp_path, caplog):
    from optimum.neuron.cache import hub_neuronx_cache
    from optimum.neuron.cache.entries import MultiModelCacheEntry, SingleModelCacheEntry
    from optimum.neuron.cache.training import patch_neuron_cc_wrapper

    from optimum_neuron.compiler.cache import CompileCache

    caplog.set_level(logging.INFO)
    entry = SingleModelCacheEntry("org/name", "text-generation", BertConfig(), {"batch_size": 1})
    assert entry.to_dict()["model_type"] == "bert" and entry.neuron_config == {"batch_size": 1}
    assert MultiModelCacheEntry("org/name", {"unet": {"a": 1}}).configs == {"unet": {"a": 1}}
    with patch_neuron_cc_wrapper(), hub_neuronx_cache(entry=entry, cache_repo_id=str(tmp_path)):
        assert CompileCache().shared_url == str(tmp_path)
    assert "patch_neuron_cc_wrapper changes nothing" in caplog.text and "entry=" in caplog.text
