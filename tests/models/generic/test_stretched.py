"""transformers' own decoders are captured with few layers, and the programs do what all of their layers do."""

from __future__ import annotations

import pytest
import torch

from optimum_neuron.compiler import compile_graphs
from optimum_neuron.compiler.lower import aten_function
from optimum_neuron.hardware import TARGETS
from optimum_neuron.kinds import MODEL
from optimum_neuron.kinds.decoder import decoder_captures
from optimum_neuron.options.configuration import NeuronConfig
from optimum_neuron.runtime import Executor
from tests.models.steps import LENGTHS, NUM_COLUMNS, NUM_TOKENS, pair
from tests.tiny import VOCABULARY

WINDOWS = (["sliding_attention"] * 5 + ["full_attention"]) * 2 + ["sliding_attention"] * 2
"""Gemma 3: five windows before each full attention, and a rest."""
GEMMA = {"num_hidden_layers": 14, "layer_types": WINDOWS, "sliding_window": 4}

STACKS = {
    "llama": ({"num_hidden_layers": 5}, 2, "layers 2 to 4: as layer 1"),
    "gpt2": ({"num_hidden_layers": 5, "n_layer": 5}, 2, "layers 2 to 4: as layer 1"),
    "mistral": ({"num_hidden_layers": 5, "sliding_window": 4}, 2, "layers 2 to 4: as layer 1"),
    "mixtral": ({"num_hidden_layers": 4}, 2, "layers 2 to 3: as layer 1"),
    "gemma3_text": (GEMMA, 8, "layers 8 to 13: as layers 2 to 7"),
    "smollm3": ({"num_hidden_layers": 5}, 3, "layers 3 to 4: as layers 1 to 2"),
}


@pytest.mark.full(days=6)
@pytest.mark.parametrize("model_type", STACKS)
def test_few_layers_are_captured_and_all_of_them_computed(model_type):
    overrides, num_captured, reason = STACKS[model_type]
    models = pair(model_type, family="generic", **overrides)
    shapes = {"sequence_length": NUM_TOKENS, "prefill_buckets": (NUM_COLUMNS,), "decode_buckets": (NUM_TOKENS,)}
    config = NeuronConfig(batch_size=2, extend_length=1, torch_dtype="float32", **shapes)
    compiled = compile_graphs(decoder_captures(models.family, config), target=TARGETS["inf2"])
    ((path, found),) = compiled.stacks.items()
    assert (found.value, found.reason) == (num_captured, f"{reason}, operator by operator"), path

    program = compiled.program
    functions = {name: aten_function(subprogram.body) for name, subprogram in program.subprograms.items()}
    weights = {name: models.weights[name.removeprefix(f"{MODEL}.")] for name in program.weights}
    executor, ids = Executor(program, functions, weights), torch.randint(3, VOCABULARY, (2, NUM_COLUMNS))
    states, wanted_states = models.new_states(extend_length=1), models.new_states(extend_length=1)
    columns, done = torch.arange(NUM_COLUMNS).expand(2, -1), torch.tensor(LENGTHS)[:, None]
    for name, tokens, positions, num_slots in (
        (f"score_{NUM_COLUMNS}", ids, columns, None),
        (f"decode_{NUM_TOKENS}", ids[:, :1], done, NUM_TOKENS),
    ):
        counts = models.counts(*(LENGTHS if num_slots is None else (1, 1)))
        logits = executor.run(name, [tokens, positions, *counts.values()], states)["logits"]
        wanted = models.run(tokens, positions, wanted_states, num_slots=num_slots, **counts)
        torch.testing.assert_close(logits, wanted, atol=1e-5, rtol=1e-4)
        for tensor, wanted_tensor in zip(states, wanted_states, strict=True):
            torch.testing.assert_close(tensor, wanted_tensor, atol=1e-5, rtol=1e-4)
