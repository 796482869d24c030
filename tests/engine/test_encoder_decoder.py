"""Targets through the graphs of an encoder-decoder: each token gets what its source and the tokens before it give.

The program is a stand-in: logits are a weighted sum of the target's tokens, and the sum of its source's real states.
"""

from __future__ import annotations

import pytest
import torch

from optimum_neuron.base.core import TensorSpec
from optimum_neuron.compiler import Graph, Program
from optimum_neuron.engine import EncoderDecoder, Input, OutputAxis, RoleSignature, Sequences, Signature, StateSignature
from optimum_neuron.errors import ShapeError
from tests.engine.counting import StandIn

NUM_ROWS, SLOTS, STATES, WIDTH = 2, 6, (3, 5), 4


class Loaded(StandIn):
    def __init__(self, *, is_masked, has_row_positions):
        self.is_masked = is_masked
        graphs = [self.graph("encode", input_ids=(NUM_ROWS, STATES[-1]))]
        for size in STATES:
            mask = {"attention_mask": (NUM_ROWS, size)} if is_masked else {}
            states = {"encoder_hidden_states": (NUM_ROWS, size, WIDTH)}
            graphs.append(self.graph("prefill", {"num_states": size}, input_ids=(NUM_ROWS, 1), **mask, **states))
        mask = {"attention_mask": (NUM_ROWS, STATES[-1])} if is_masked else {}
        position = (NUM_ROWS, 1) if has_row_positions else (1,)
        graphs.append(self.graph("decode", input_ids=(NUM_ROWS, 1), **mask, position=position))
        shapes = {"tokens.0": (NUM_ROWS, SLOTS), "source.0": (NUM_ROWS, STATES[-1])}
        states = {name: TensorSpec(shape=shape, dtype="float32") for name, shape in shapes.items()}
        by_name = {graph.name: graph for graph in graphs}
        self.program = Program(graphs=by_name, subprograms={}, weights={}, states=states, constants={})
        axes = ("batch_size", "sequence_length")
        encode = RoleSignature(
            inputs=(Input(name="input_ids", dtype="int64", axes=axes),),
            outputs={"last_hidden_state": tuple(OutputAxis(dim=dim, axis=axis) for dim, axis in enumerate(axes))},
            padded={"sequence_length": "a mask"},
        )
        cross = (OutputAxis(dim=3, axis="num_states"),)
        own_tokens = (OutputAxis(dim=3, axis="num_tokens"),)
        outputs = {
            "logits": (OutputAxis(dim=0, axis="batch_size"),),
            "cross_attentions.0": cross,
            "decoder_attentions.0": own_tokens,
        }
        decode = RoleSignature(inputs=(), outputs=outputs)
        own = StateSignature(axes=("batch_size", "num_slots"))
        shared = StateSignature(axes=("batch_size", "num_states"), is_shared=True)
        roles = {"encode": encode, "decode": decode}
        self.signature = Signature(roles=roles, states={"tokens": own, "source": shared})

    @staticmethod
    def graph(role, sizes=None, **shapes):
        inputs = {name: TensorSpec(shape=shape, dtype="int64") for name, shape in shapes.items()}
        name = "_".join(map(str, (role, *(sizes or {}).values())))
        return Graph(name=name, inputs=inputs, outputs={}, calls=(), role=role, sizes=sizes or {})

    def compute(self, graph, named, state):
        ids, (tokens, source) = named["input_ids"], state
        if graph == "encode":
            return {"last_hidden_state": ids[..., None].expand(-1, -1, WIDTH).float()}
        if "encoder_hidden_states" in named:
            hidden, position = named["encoder_hidden_states"], torch.zeros(NUM_ROWS, 1, dtype=torch.long)
            source.zero_()
            source[:, : hidden.shape[1]] = hidden.sum(-1)
        else:
            position = named["position"].expand(NUM_ROWS, -1) if named["position"].ndim == 1 else named["position"]
        mask = torch.ones_like(source)
        if self.is_masked:
            given = named["attention_mask"]
            mask = torch.nn.functional.pad(given, (0, STATES[-1] - given.shape[1]))
        tokens.scatter_(1, position, ids.float())
        sums = (tokens * torch.arange(1, SLOTS + 1)).cumsum(1).gather(1, position)
        crossed = source * mask
        return {
            "logits": torch.stack([sums, crossed.sum(1, keepdim=True)], -1),
            "cross_attentions.0": crossed[:, None, None],
            "decoder_attentions.0": tokens[:, None, None].clone(),
        }


def expected(ids, hidden, mask):
    sums = (ids * torch.arange(1, ids.shape[1] + 1)).cumsum(1).float()
    crossed = hidden.sum(-1) * (torch.ones(hidden.shape[:2]) if mask is None else mask)
    logits = torch.stack([sums, crossed.sum(1, keepdim=True).expand_as(sums)], -1)
    return logits, crossed[:, None, None].expand(-1, -1, ids.shape[1], -1)


@pytest.mark.parametrize("num_states", [2, 3, 4])
@pytest.mark.parametrize("num_targets", [2, 3])
@pytest.mark.parametrize(("is_masked", "has_row_positions"), [(True, True), (True, False), (False, True)])
def test_targets_continue_with_their_sources(num_states, num_targets, is_masked, has_row_positions):
    loaded = Loaded(is_masked=is_masked, has_row_positions=has_row_positions)
    program, sequences = EncoderDecoder(loaded, loaded.signature), Sequences(loaded, loaded.signature)
    assert (program.num_slots, program.has_row_positions) == (SLOTS, has_row_positions)
    sequences.resize(num_targets)
    sources = torch.arange(1, 1 + num_targets * num_states).reshape(num_targets, num_states)
    hidden = program.encode({"input_ids": sources})["last_hidden_state"]
    assert torch.equal(hidden, sources[..., None].expand(-1, -1, WIDTH).float())
    mask = torch.ones(num_targets, num_states, dtype=torch.long)
    mask[0, -1] = 0
    ids = torch.randint(1, 9, (num_targets, SLOTS), generator=torch.Generator().manual_seed(0))
    logits, crossed = expected(ids, hidden, mask if is_masked else None)
    positions = torch.arange(SLOTS).expand(num_targets, -1)
    for begin, end in ((0, 1), (1, 3), (3, 4)):
        columns = slice(begin, end)
        results = program(ids[:, columns], positions[:, columns], hidden, mask, sequences, num_past=begin)
        assert torch.equal(results["logits"], logits[:, columns])
        assert torch.equal(results["cross_attentions.0"], crossed[:, :, columns])
        attended = [torch.where(torch.arange(end) <= column, ids[:, :end], 0) for column in range(begin, end)]
        assert torch.equal(results["decoder_attentions.0"][:, 0], torch.stack(attended, 1).float())
    steps = program.steps(sequences, torch.full((num_targets,), 4), mask)
    for column in (4, 5):
        assert torch.equal(steps(ids[:, column])["logits"], logits[:, column : column + 1])


def test_a_prompt_of_several_tokens_and_a_source_that_is_too_long():
    loaded = Loaded(is_masked=True, has_row_positions=True)
    program, sequences = EncoderDecoder(loaded, loaded.signature), Sequences(loaded, loaded.signature)
    sequences.resize(1)
    ids, mask, hidden = torch.tensor([[3, 5, 2]]), torch.ones(1, 5, dtype=torch.long), torch.rand(1, 5, WIDTH).half()
    results = program(ids, torch.arange(3)[None], hidden, mask, sequences, num_past=0)
    assert torch.equal(results["logits"], expected(ids, hidden.float(), mask)[0])
    with pytest.raises(ShapeError) as failure:
        program(ids, torch.arange(3)[None], torch.zeros(1, 6, WIDTH), torch.ones(1, 6), sequences, num_past=0)
    assert failure.value.details == {"size": 6, "buckets": list(STATES)}
