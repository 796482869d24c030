"""Keywords of Optimum Neuron: reported, checked, or taken apart."""

from __future__ import annotations

import logging

import pytest

from optimum_neuron import NeuronConfig, NeuronModelForCausalLM, main_export
from optimum_neuron.compiler.neff import open_neff
from optimum_neuron.errors import ConfigError, ModelError
from optimum_neuron.exporters.folder import NEFF_FILE
from optimum_neuron.exporters.peer_options import FIXED, OF_DIFFUSION, WITHOUT_EFFECT, translate
from tests.tiny import SHAPES


@pytest.mark.parametrize("name", WITHOUT_EFFECT)
def test_a_keyword_that_changes_nothing_is_reported(name, caplog):
    caplog.set_level(logging.INFO, "optimum_neuron.exporters.peer_options")
    assert translate({name: True, "batch_size": 2}) == {"batch_size": 2}
    assert [record.args[0] for record in caplog.records] == [name]


def test_a_keyword_with_one_value_takes_that_value():
    assert translate({name: value for name, (value, _) in FIXED.items()}) == {}
    assert translate(dict.fromkeys(FIXED)) == {}
    wrong = {"tensor_parallel_size": 2, "num_cores": True, "file_name": "other.neuron"}
    with pytest.raises(ConfigError) as refused:
        translate(wrong)
    assert refused.value.details == {"options": wrong}


@pytest.mark.parametrize("name", OF_DIFFUSION)
def test_options_of_diffusion_are_an_error_when_they_are_given(name):
    assert translate({name: None}) == translate({name: []}) == {}
    with pytest.raises(ModelError) as refused:
        translate({name: ["a"]})
    assert refused.value.details == {"options": [name]}


def test_a_configuration_stands_for_its_options():
    config = NeuronConfig(batch_size=3, sequence_length=64)
    assert translate({"neuron_config": config, "batch_size": 1}, known=("batch_size", "sequence_length")) == {
        "batch_size": 1,
        "sequence_length": 64,
    }
    with pytest.raises(ConfigError) as refused:
        translate({"neuron_config": {"batch_size": 1}})
    assert refused.value.details == {"type": "dict"}


def test_models_and_exports_take_them(checkpoint, tmp_path):
    peer = {"tensor_parallel_size": 1, "disable_fast_relayout": True, "load_weights": True}
    options = {**SHAPES, **peer, "compiler_workdir": tmp_path / "work"}
    config = NeuronModelForCausalLM.from_pretrained(checkpoint, export=True, **options).neuron_config
    assert open_neff(tmp_path / "work" / "graph.neff").names
    main_export(checkpoint, tmp_path / "out", neuron_config=config, compiler_workdir=tmp_path / "other")
    assert NeuronConfig.from_pretrained(tmp_path / "out") == config
    assert (tmp_path / "other" / "graph.neff").read_bytes() == (tmp_path / "out" / NEFF_FILE).read_bytes()
    with pytest.raises(ConfigError):
        NeuronModelForCausalLM.from_pretrained(checkpoint, export=True, num_cores=2)
