"""Whole programs at the highest optimization level (real compiles, half a minute)."""

import pytest
import torch

from optimum_neuron.compiler import compile_graphs
from optimum_neuron.compiler.lower import lower, probe_compiler
from optimum_neuron.exporters.validation import compare
from optimum_neuron.hardware import TARGETS
from optimum_neuron.kinds import MODEL
from optimum_neuron.kinds.decoder import decoder_captures
from optimum_neuron.options.configuration import NeuronConfig
from optimum_neuron.runtime import Executor
from tests.models.steps import NUM_COLUMNS, NUM_TOKENS, pair
from tests.tiny import VOCABULARY

CONFIG = NeuronConfig(
    batch_size=2,
    sequence_length=NUM_TOKENS,
    prefill_buckets=(NUM_COLUMNS,),
    decode_buckets=(NUM_TOKENS,),
    extend_length=1,
    torch_dtype="float32",
)
SCORE, DECODE = f"score_{NUM_COLUMNS}", f"decode_{NUM_TOKENS}"


@pytest.mark.full(days=6)
@pytest.mark.skipif(probe_compiler() is None, reason="no C++ compiler on this machine")
def test_o3_matches_o1(tmp_path):
    models = pair("llama")
    captures = decoder_captures(models.family, CONFIG)
    captures = [capture for capture in captures if capture.keywords["name"] in (SCORE, DECODE)]
    program = compile_graphs(captures, target=TARGETS["inf2"]).program
    weights = {name: models.weights[name.removeprefix(f"{MODEL}.")] for name in program.weights}
    plain = lower(program, optlevel="1", root=tmp_path)
    best = lower(program, optlevel="3", root=tmp_path)
    assert plain.num_compiled == 0 and {choice.value for choice in plain.choices.values()} == {"aten"}
    assert best.num_compiled == [choice.value for choice in best.choices.values()].count("inductor-max") > 1

    ids = torch.randint(3, VOCABULARY, (2, NUM_COLUMNS), generator=torch.Generator().manual_seed(1))
    positions = torch.arange(NUM_COLUMNS).repeat(2, 1)
    results = []
    for host in (plain, best):
        executor, states = Executor(program, host.functions, weights), models.new_states()
        prompt = executor.run(SCORE, [ids, positions], states)["logits"]
        token = executor.run(DECODE, [ids[:, :1].contiguous(), torch.full((2, 1), NUM_COLUMNS)], states)["logits"]
        results.append({"prompt": prompt, "token": token, "caches": torch.stack(states[::2])})
    expected, result = results
    for name in expected:
        assert expected[name].std() > 0.05, "results that hardly differ prove nothing"
        error = compare(name, result[name], expected[name], tolerance=1e-5)
        assert error.ok and error.sqnr_db > 100 and error.top1_agreement == 1, error
