"""`Seq2SeqNeuronTrainer` against transformers' trainer on the CPU: losses, and tokens that evaluation generates."""

from __future__ import annotations

import copy

import pytest
import torch
from transformers import Seq2SeqTrainer, Seq2SeqTrainingArguments, T5Config, T5ForConditionalGeneration

from optimum_neuron import NeuronTrainingArguments, Seq2SeqNeuronTrainer, Seq2SeqNeuronTrainingArguments
from optimum_neuron.errors import ConfigError

ROWS = [{"input_ids": torch.arange(8) + row, "labels": torch.arange(6) + row + 2} for row in range(4)]
OPTIONS = {"max_steps": 20, "learning_rate": 0.03, "logging_steps": 1, "report_to": [], "disable_tqdm": True}


@pytest.fixture
def model():
    torch.manual_seed(0)
    sizes = {"vocab_size": 32, "d_model": 16, "d_kv": 8, "d_ff": 32, "num_layers": 1, "num_heads": 2}
    return T5ForConditionalGeneration(T5Config(**sizes, dropout_rate=0.0, decoder_start_token_id=0))


def test_losses_and_generated_tokens_are_those_of_transformers(model, tmp_path):
    def run(trainer, arguments, model, **options):
        options |= OPTIONS | {"output_dir": str(tmp_path), "predict_with_generate": True}
        trained = trainer(model, arguments(**options), train_dataset=ROWS)
        trained.train()
        losses = [entry["loss"] for entry in trained.state.log_history if "loss" in entry]
        return torch.tensor(losses), torch.as_tensor(trained.predict(ROWS, max_length=7).predictions)

    losses, tokens = run(Seq2SeqNeuronTrainer, Seq2SeqNeuronTrainingArguments, copy.deepcopy(model))
    same, others = run(Seq2SeqTrainer, Seq2SeqTrainingArguments, model, use_cpu=True)
    assert (losses - same).abs().max() < 1e-4 and losses[-1] < losses[0] / 2
    assert torch.equal(tokens, others) and tokens.unique().numel() > 3


def test_arguments_have_the_fields_of_both(tmp_path):
    arguments = Seq2SeqNeuronTrainingArguments(output_dir=str(tmp_path), generation_num_beams=2, max_recompiles=3)
    assert (arguments.generation_num_beams, arguments.max_recompiles, arguments.device.type) == (2, 3, "neuron")
    with pytest.raises(ConfigError):
        Seq2SeqNeuronTrainingArguments(output_dir=str(tmp_path), fp16=True)


def test_arguments_of_another_trainer_are_refused(model, tmp_path):
    with pytest.raises(ConfigError):
        Seq2SeqNeuronTrainer("t5-small", Seq2SeqNeuronTrainingArguments(output_dir=str(tmp_path)))
    with pytest.raises(ConfigError) as error:
        Seq2SeqNeuronTrainer(model, NeuronTrainingArguments(output_dir=str(tmp_path)), train_dataset=ROWS)
    assert error.value.details["type"] == "NeuronTrainingArguments"
