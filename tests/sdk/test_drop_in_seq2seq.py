"""Encoder-decoders under `optimum.neuron`; references are transformers' tokens."""

from __future__ import annotations

import logging

import pytest
import torch
import transformers

import optimum_neuron
from optimum_neuron.errors import ConfigError
from tests.raising import raises
from tests.seq2seq import save_tiny_seq2seq

pytest.importorskip("optimum.neuron", reason="the sdk distribution is not installed")

IDS = torch.randint(3, 90, (1, 8), generator=torch.Generator().manual_seed(0))
SIZES = {"batch_size": 1, "sequence_length": 8, "decoder_sequence_length": 8}
OPTIONS = {**SIZES, "optlevel": "1", "disable_validation": True}
LAYERS = {"output_attentions": True, "output_hidden_states": True}


@pytest.mark.full(days=2)
def test_results_of_layers_that_were_not_exported_are_ignored_here_only(tmp_path, caplog):
    from optimum.neuron import NeuronModelForSeq2SeqLM

    folder = save_tiny_seq2seq(tmp_path / "t5", "t5")
    model = NeuronModelForSeq2SeqLM.from_pretrained(folder, export=True, **OPTIONS)
    settings = {"do_sample": False, "max_new_tokens": 4, "return_dict_in_generate": True}
    caplog.clear()
    with caplog.at_level(logging.INFO, logger="optimum_neuron"):
        answer = model.generate(IDS, **LAYERS, **settings)
    lines = [record.getMessage() for record in caplog.records]
    assert len([line for line in lines if all(name in line for name in LAYERS)]) == 1
    steps = answer.sequences.shape[1] - 1
    assert answer.decoder_attentions == answer.cross_attentions == answer.decoder_hidden_states == (None,) * steps
    original = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder, dtype=torch.float32)
    assert torch.equal(answer.sequences, original.generate(IDS, **settings).sequences)
    model.save_pretrained(tmp_path / "exported")
    model.close()
    plain = optimum_neuron.NeuronModelForSeq2SeqLM.from_pretrained(tmp_path / "exported")
    with raises(ConfigError, options=list(LAYERS)):
        plain.generate(IDS, **LAYERS, **settings)
