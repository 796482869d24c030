"""Padded batches through the graphs of a decoder: every column gets what its row's tokens alone would.

The program is a stand-in: it keeps tokens in its cache, and its logits are the position of a token, a weighted sum of
all tokens up to it, and their number. So a token in a wrong slot, row, or order changes every later result, and so does
padding that a state without slots counts.
"""

from __future__ import annotations

import pytest
import torch

from optimum_neuron.compiler import Graph, Program
from optimum_neuron.core import TensorSpec
from optimum_neuron.engine import (
    Input,
    PromptFeatures,
    RoleSignature,
    Signature,
    StateSignature,
    make_decoder,
    make_sequences,
    plan_packing,
)
from optimum_neuron.errors import ShapeError
from optimum_neuron.runtime import State

NUM_ROWS, SLOTS, BLOCK = 2, 12, 3
PREFILL, EXTEND, DECODE = (2, 4), 3, (6, SLOTS)


class Loaded:
    """The stand-in, with a row of slots for each sequence, or with blocks; `extras` are inputs beside those."""

    executor = None

    def __init__(self, *, is_paged=False, extend=EXTEND, extras=()):
        self.is_paged, self.extras, self.runs = is_paged, {*extras}, []
        self.counts = "num_new_tokens" in extras
        graphs = [self.graph("decode", NUM_ROWS, 1, num_slots=slots) for slots in DECODE]
        if extend:
            graphs.append(self.graph("extend", NUM_ROWS, extend, num_tokens=extend))
        for role in ("prefill", "score"):
            if not is_paged:
                graphs += [self.graph(role, NUM_ROWS, length, num_tokens=length) for length in PREFILL]
                continue
            graphs += [self.graph(role, 1, PREFILL[-1], num_slots=slots) for slots in DECODE]
            if role == "prefill":
                graphs += [self.graph(role, 1, PREFILL[0], num_tokens=PREFILL[0], num_slots=slots) for slots in DECODE]
        states = {"tokens.0": (1 + NUM_ROWS * SLOTS // BLOCK, BLOCK) if is_paged else (NUM_ROWS, SLOTS)}
        states |= {"count.0": (NUM_ROWS,)} if self.counts else {}
        specs = {name: TensorSpec(shape=shape, dtype="float32") for name, shape in states.items()}
        by_name = {graph.name: graph for graph in graphs}
        self.program = Program(graphs=by_name, subprograms={}, weights={}, states=specs, constants={})
        axes = ("num_blocks", "block_size") if is_paged else ("batch_size", "num_slots")
        names = by_name[f"decode_1_{DECODE[0]}"].inputs
        inputs = tuple(Input(name=name, dtype="int64", axes=()) for name in names)
        roles = {"decode": RoleSignature(inputs=inputs, outputs={})}
        both = {"tokens": StateSignature(axes=axes), "count": StateSignature(axes=axes[:1])}
        names = {name.rpartition(".")[0] for name in states}
        self.signature = Signature(roles=roles, states={name: both[name] for name in sorted(names)})

    def graph(self, role, rows, length, **sizes):
        shapes = {"input_ids": (rows, length), "positions": (rows, length)}
        if self.is_paged:
            shapes["block_table"] = (rows, sizes.get("num_slots", SLOTS) // BLOCK)
        is_chunk = self.is_paged and role in ("prefill", "score")
        shapes |= {"num_new_tokens": (rows,)} if is_chunk or self.counts else {}
        shapes |= {"state_row": (1,)} if is_chunk and self.counts else {}
        shapes |= {"last": (rows,)} if role == "prefill" else {}
        shapes |= {"adapter_index": (rows,)} if "adapter_index" in self.extras else {}
        inputs = {name: TensorSpec(shape=shape, dtype="int64") for name, shape in shapes.items()}
        name = "_".join(map(str, (role, length, *sizes.values())))
        return Graph(name=name, inputs=inputs, outputs={}, calls=(), role=role, sizes=sizes)

    def take_state(self, beside=None):
        return State(torch.zeros(spec.shape) for spec in self.program.states.values())

    def give_back(self, state):
        pass

    def prepared(self, graph, inputs, state):
        return lambda: self.run(graph, inputs, state)

    def run(self, graph, inputs, state):
        self.runs.append(graph)
        specs = self.program.graphs[graph].inputs
        assert [tuple(one.shape) for one in inputs] == [spec.shape for spec in specs.values()]
        named = dict(zip(specs, inputs, strict=True))
        ids, positions = named["input_ids"], named["positions"]
        table = named.get("block_table")
        dense = state[0] if table is None else state[0][table].flatten(1)
        num_slots = self.program.graphs[graph].sizes.get("num_slots", SLOTS)
        assert int(positions.max()) < num_slots
        new = named.get("num_new_tokens", torch.full((len(ids),), ids.shape[1]))
        for row, column in (torch.arange(ids.shape[1]) < new[:, None]).nonzero().tolist():
            place = int(positions[row, column])
            dense[row, place] = ids[row, column]
            if table is not None:
                state[0][table[row, place // BLOCK], place % BLOCK] = ids[row, column]
        counts = positions + 1
        if self.counts:
            rows = named.get("state_row", torch.arange(NUM_ROWS))
            begins = graph.startswith(("prefill", "score")) and not self.is_paged
            before = torch.zeros(NUM_ROWS) if begins else state[1][rows]
            state[1][rows] = before + new
            counts = before[:, None] + torch.minimum(torch.arange(1, ids.shape[1] + 1), new[:, None])
        sums = (dense * torch.arange(1, dense.shape[1] + 1))[:, :num_slots].cumsum(1)
        sums = sums + 1000 * named["adapter_index"][:, None] if "adapter_index" in named else sums
        every = torch.stack([positions.float(), sums.gather(1, positions), counts.float()], -1)
        last = every.gather(1, named["last"][:, None, None].expand(-1, 1, 3)) if "last" in named else every
        return {"logits": last, "hidden_states.1": every}


def expected(ids, mask, adapters=None):
    """Logits of every column; those of padding are those of the token before it."""
    result = torch.zeros(*ids.shape, 3)
    for row in range(len(ids)):
        total, count = 0, 0
        for column in range(ids.shape[1]):
            if mask[row, column]:
                count += 1
                total += count * int(ids[row, column])
            offset = 1000 * adapters[row] if adapters else 0
            result[row, column] = torch.tensor([count - 1, total + offset, count])
    return result


def assert_columns(decoder, sequences, ids, mask, *, num_past, num_logits=0, adapters=None):
    """Add columns, and compare those behind a row's first new token."""
    packing = plan_packing(mask, num_past)
    options = {"num_past": num_past, "num_logits": num_logits}
    results = decoder.results(ids[:, num_past:], packing, sequences, **options)
    new = expected(ids, mask, adapters)[:, num_past:]
    compared = mask[:, num_past:].cumsum(1) > 0
    assert torch.equal(results["hidden_states.1"][compared], new[compared])
    kept = slice(-num_logits, None) if num_logits else slice(None)
    assert results["logits"].shape == new[:, kept].shape
    assert torch.equal(results["logits"][compared[:, kept]], new[:, kept][compared[:, kept]])


def mask_of(*rows):
    return torch.tensor([[int(one) for one in row] for row in rows])


def roles(sequences):
    """Roles of the graphs that ran."""
    return {graph.partition("_")[0] for graph in sequences.loaded.runs}


def start(num_sequences, **options):
    loaded = Loaded(**options)
    sequences = make_sequences(loaded, loaded.signature)
    sequences.resize(num_sequences)
    return make_decoder(loaded, loaded.signature), sequences


PROMPTS = {
    "short": mask_of("11", "01"),
    "bucket": mask_of("1111", "0011"),
    "three rows": mask_of("0111", "1101", "1111"),
    "chunks": mask_of("0011111", "1111111", "1110000"),
    "long": mask_of("01111111111", "11111111111"),
}
KINDS = {
    "rows": {},
    "counted": {"extras": ("num_new_tokens",)},
    "one by one": {"extend": 0},
    "blocks": {"is_paged": True},
    "blocks and a state of each row": {"is_paged": True, "extras": ("num_new_tokens",)},
    "blocks one by one": {"is_paged": True, "extend": 0},
}


@pytest.mark.parametrize("num_logits", [0, 1, 2])
@pytest.mark.parametrize("prompt", sorted(PROMPTS))
@pytest.mark.parametrize("kind", sorted(KINDS))
def test_prompts_and_what_follows(kind, prompt, num_logits):
    mask = PROMPTS[prompt]
    decoder, sequences = start(len(mask), **KINDS[kind])
    ids = torch.randint(1, 9, (len(mask), SLOTS), generator=torch.Generator().manual_seed(0))
    length = mask.shape[1]
    assert_columns(decoder, sequences, ids[:, :length], mask, num_past=0, num_logits=num_logits)
    for more in (1, 4):
        # The second row pauses in the first of several columns.
        new = torch.ones(len(mask), min(more, SLOTS - mask.shape[1]), dtype=torch.long)
        if new.shape[1] > 1:
            new[1, 0] = 0
        mask, past = torch.cat([mask, new], 1), mask.shape[1]
        if new.shape[1]:
            assert_columns(decoder, sequences, ids[:, : mask.shape[1]], mask, num_past=past, num_logits=num_logits)


@pytest.mark.parametrize("num_logits", [0, 1, 2])
@pytest.mark.parametrize("kind", sorted(KINDS))
def test_columns_with_one_token_of_each_row(kind, num_logits):
    decoder, sequences = start(2, **KINDS[kind])
    ids = torch.randint(1, 9, (2, 6), generator=torch.Generator().manual_seed(3))
    mask = mask_of("111100", "110110")
    assert_columns(decoder, sequences, ids[:, :3], mask[:, :3], num_past=0)
    assert_columns(decoder, sequences, ids[:, :5], mask[:, :5], num_past=3, num_logits=num_logits)


@pytest.mark.parametrize("kind", ["blocks", "rows"])
def test_logits_of_every_token_are_computed_on_request_alone(kind):
    mask, ids = PROMPTS["bucket"], torch.ones(2, SLOTS, dtype=torch.long)
    for num_logits, role in ((1, "prefill"), (0, "score"), (2, "score")):
        decoder, sequences = start(2, **KINDS[kind])
        decoder(ids[:, :4], plan_packing(mask, 0), sequences, num_past=0, num_logits=num_logits)
        assert roles(sequences) == {role}
        for number in (1, EXTEND):
            past, mask_of_all = sequences.loaded.runs.clear() or 4, torch.cat([mask, torch.ones(2, number).long()], 1)
            decoder(ids[:, :number], plan_packing(mask_of_all, past), sequences, num_past=past, num_logits=num_logits)
            assert roles(sequences) == {"decode" if number == 1 else "extend"}


@pytest.mark.parametrize(("num_logits", "role"), [(1, "prefill"), (3, "prefill"), (4, "score"), (0, "score")])
def test_the_first_bucket_of_a_long_prompt_is_read_for_its_logits_alone(num_logits, role):
    decoder, sequences = start(2)
    ids, mask = torch.ones(2, 7, dtype=torch.long), torch.ones(2, 7, dtype=torch.long)
    decoder(ids, plan_packing(mask, 0), sequences, num_past=0, num_logits=num_logits)
    assert roles(sequences) == {role, "extend"}


def test_features_are_read_with_the_prompt_or_not_at_all():
    decoder, sequences = start(1)
    features = PromptFeatures(index_RT=torch.zeros(1, 5).long(), features_RFD=torch.zeros(1, 1, 4))
    with pytest.raises(ShapeError):
        ids, packing = torch.ones(1, 5, dtype=torch.long), plan_packing(torch.ones(1, 5), 0)
        decoder(ids, packing, sequences, num_past=0, features=features)


@pytest.mark.parametrize("kind", sorted(KINDS))
@pytest.mark.parametrize("order", [[0, 1, 2], [2, 0, 1], [1], [1, 0], [0, 0, 2], [2, 2, 1]], ids=str)
def test_steps_of_sequences_in_any_order(kind, order):
    mask = PROMPTS["three rows"]
    decoder, sequences = start(3, **KINDS[kind])
    ids = torch.randint(1, 9, (3, SLOTS), generator=torch.Generator().manual_seed(1))
    packing = plan_packing(mask, 0)
    decoder(ids[:, :4], packing, sequences, num_past=0, num_logits=1)
    sequences.select(order)
    ids, mask = ids[order], mask[order]
    steps = decoder.steps(sequences, packing.lengths_R[order])
    for column in range(4, 10):
        mask = torch.cat([mask, torch.ones(len(order), 1, dtype=torch.long)], 1)
        logits = steps(ids[:, column])["logits"]
        assert torch.equal(logits, expected(ids[:, : column + 1], mask)[:, -1:])


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_a_row_may_have_no_new_token(kind):
    decoder, sequences = start(2, **KINDS[kind])
    ids = torch.randint(1, 9, (2, 8), generator=torch.Generator().manual_seed(4))
    mask = mask_of("11111111", "11100011")
    for past, length in ((0, 3), (3, 4), (4, 6), (6, 8)):
        assert_columns(decoder, sequences, ids[:, :length], mask[:, :length], num_past=past)


@pytest.mark.parametrize("kind", ["blocks", "rows"])
def test_candidates_are_checked_and_replaced(kind):
    decoder, sequences = start(1, **KINDS[kind])
    ids = torch.tensor([[3, 5, 7, 2, 4, 6, 8, 1, 9, 3, 2, 5]])
    decoder(ids[:, :2], plan_packing(torch.ones(1, 2), 0), sequences, num_past=0, num_logits=1)
    check = decoder.check(sequences, 2)
    assert [check.room(new) for new in (0, 7, 8, 10)] == [EXTEND - 1, EXTEND - 1, 0, 0]
    check([7, 8, 8], 0)
    whole, every = torch.ones(1, SLOTS), expected(ids, torch.ones(1, SLOTS))
    assert torch.equal(check([2, 4, 6], 1)["logits"], every[:, 3:6])
    assert torch.equal(check([8], 4)["logits"], every[:, 6:7])
    assert torch.equal(check([1, 9], 5)["logits"], every[:, 7:9]) and whole.shape == ids.shape


@pytest.mark.parametrize("is_paged", [False, True])
def test_adapters_follow_their_sequences(is_paged):
    decoder, sequences = start(3, is_paged=is_paged, extras=("adapter_index",))
    sequences.use_adapters([2, 0, 1])
    ids = torch.randint(1, 9, (3, 8), generator=torch.Generator().manual_seed(2))
    mask = mask_of("0111", "1101", "1111")
    assert_columns(decoder, sequences, ids[:, :4], mask, num_past=0, adapters=[2, 0, 1])
    sequences.select([2, 1, 0])
    ids, mask = ids[[2, 1, 0]], torch.cat([mask[[2, 1, 0]], torch.ones(3, 1, dtype=torch.long)], 1)
    assert_columns(decoder, sequences, ids[:, :5], mask, num_past=4, adapters=[1, 0, 2])
    steps = decoder.steps(sequences, mask.sum(1))
    whole = torch.cat([mask, torch.ones(3, 1, dtype=torch.long)], 1)
    assert torch.equal(steps(ids[:, 5])["logits"], expected(ids[:, :6], whole, [1, 0, 2])[:, -1:])


def test_bucket_of_a_prompt():
    decoder, _ = start(1)
    assert (decoder.choose_bucket(3).value, decoder.prefill_buckets, decoder.chunks_from) == (4, (2, 4), 4)
    assert (decoder.num_slots, decoder.extend_length, start(1, extend=0)[0].extend_length) == (SLOTS, EXTEND, 1)
    with pytest.raises(ShapeError) as failure:
        decoder.choose_bucket(5)
    assert failure.value.details["buckets"] == [2, 4]
    assert start(1, is_paged=True)[0].chunk_sizes == (2, 4)
