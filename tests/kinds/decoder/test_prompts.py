"""Graphs of prompts: one capture for both of one length, and programs as if each had been captured alone."""

from __future__ import annotations

import pytest
import torch

from optimum_neuron.compiler import compile_graphs
from optimum_neuron.exporters import without_weights
from optimum_neuron.kinds import kind_of
from optimum_neuron.kinds.decoder import paged, plan
from tests.tiny import save_tiny

SIZES = {"sequence_length": 16, "torch_dtype": "float32", "optlevel": "1"}
PAGED = {"continuous_batching": True, "block_size": 8, "prefill_chunk_size": 8, "batch_size": 2}


@pytest.mark.full(days=3)
@pytest.mark.parametrize(
    ("family", "options", "num_captures"),
    [("llama", {"speculation": True}, 3), ("lfm2", PAGED, 3), ("llama", {"family": "generic"}, 4)],
    ids=["hidden states", "paged", "generic"],
)
def test_prompts_are_captured_once_for_both_of_their_graphs(family, options, num_captures, tmp_path, monkeypatch):
    source, config, _, _ = without_weights(save_tiny(tmp_path / family, family), {**SIZES, **options})
    exports, real = [], torch.export.export

    def export(*arguments, **options):
        exports.append(arguments)
        return real(*arguments, **options)

    def compiled():
        captures = kind_of(config.task, family).plan(source, config, trust_remote_code=False).captures
        return compile_graphs(captures, target=None).program

    monkeypatch.setattr("torch.export.export", export)
    program = compiled()
    assert (len(exports), len(program.graphs)) == (num_captures, 4)
    if num_captures < len(program.graphs):
        for module in (plan, paged):
            monkeypatch.setattr(module, "prompt_captures", lambda *alone: [*alone])
        assert program.content_hash() == compiled().content_hash() and len(exports) == num_captures + 4
