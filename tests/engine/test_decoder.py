"""Padded batches through the graphs of a decoder: every column gets what its row's tokens alone would."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from optimum_neuron.engine import (
    PromptFeatures,
    make_decoder,
    make_sequences,
    plan_packing,
)
from optimum_neuron.engine.decoder import _joined
from optimum_neuron.errors import ShapeError
from tests.engine.counting import EXTEND, SLOTS, Loaded


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
    "chunks of one row": mask_of("1111111", "1110000"),
    "long": mask_of("01111111111", "11111111111"),
}
KINDS = {
    "rows": {},
    "counted": {"extras": ("num_new_tokens",)},
    "one by one": {"extend": ()},
    "blocks": {"is_paged": True},
    "blocks and a state of each row": {"is_paged": True, "extras": ("num_new_tokens",)},
    "blocks one by one": {"is_paged": True, "extend": ()},
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
@pytest.mark.parametrize("second", ["110110", "110010"])
def test_columns_with_one_token_of_each_row(kind, num_logits, second):
    decoder, sequences = start(2, **KINDS[kind])
    ids = torch.randint(1, 9, (2, 6), generator=torch.Generator().manual_seed(3))
    mask = mask_of("111100", second)
    assert_columns(decoder, sequences, ids[:, :3], mask[:, :3], num_past=0)
    assert_columns(decoder, sequences, ids[:, :5], mask[:, :5], num_past=3, num_logits=num_logits)


@pytest.mark.parametrize("kind", ["blocks", "rows"])
def test_logits_of_every_token_are_computed_on_request_alone(kind):
    mask, ids = PROMPTS["bucket"], torch.ones(2, SLOTS, dtype=torch.long)
    for num_logits, role in ((1, "prefill"), (0, "score"), (2, "score")):
        decoder, sequences = start(2, **KINDS[kind])
        columns = decoder(ids[:, :4], plan_packing(mask, 0), sequences, num_past=0, num_logits=num_logits).shape[1]
        assert roles(sequences) == {role} and columns == (num_logits or 4)
        for number in (1, EXTEND, EXTEND + 1):
            past, mask_of_all = sequences.loaded.runs.clear() or 4, torch.cat([mask, torch.ones(2, number).long()], 1)
            decoder(ids[:, :number], plan_packing(mask_of_all, past), sequences, num_past=past, num_logits=num_logits)
            by_chunk = number > EXTEND and kind == "blocks"
            assert roles(sequences) == {role if by_chunk else "decode" if number == 1 else "extend"}


@pytest.mark.parametrize(("num_logits", "role"), [(1, "prefill"), (3, "prefill"), (4, "score"), (0, "score")])
def test_the_first_bucket_of_a_long_prompt_is_read_for_its_logits_alone(num_logits, role):
    decoder, sequences = start(2)
    ids, mask = torch.ones(2, 7, dtype=torch.long), torch.ones(2, 7, dtype=torch.long)
    decoder(ids, plan_packing(mask, 0), sequences, num_past=0, num_logits=num_logits)
    assert roles(sequences) == {role, "extend"}


def test_steps_may_begin_without_a_prompt():
    decoder, sequences = start(2)
    ids, whole = torch.tensor([[3, 4], [5, 6]]), torch.ones(2, 2)
    steps = decoder.steps(sequences, torch.zeros(2, dtype=torch.long))
    for column in range(2):
        logits = steps(ids[:, column])["logits"]
        assert torch.equal(logits[:, 0], expected(ids, whole)[:, column])
        assert logits.data_ptr() == sequences.loaded.last["logits"].data_ptr(), "nothing is copied"


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_a_full_row_waits_for_others(kind):
    decoder, sequences = start(2, **KINDS[kind])
    ids = torch.randint(1, 9, (2, SLOTS + 1), generator=torch.Generator().manual_seed(6))
    mask = mask_of("1" * SLOTS + "0", "0" + "1" * SLOTS)
    for past, length in ((0, 9), (9, 12), (12, 13)):
        assert_columns(decoder, sequences, ids[:, :length], mask[:, :length], num_past=past)


def test_features_are_read_with_the_prompt_or_not_at_all():
    decoder, sequences = start(1)
    features = PromptFeatures(index_RT=torch.zeros(1, 5).long(), features_RFD=torch.zeros(1, 1, 4))
    with pytest.raises(ShapeError):
        ids, packing = torch.ones(1, 5, dtype=torch.long), plan_packing(torch.ones(1, 5), 0)
        decoder(ids, packing, sequences, num_past=0, features=features)
    read, seen = decoder.score, []

    def score(group, ids, lengths, more):
        seen.append(more)
        return read(group, ids, lengths, [])

    decoder.score, ids = score, torch.ones(1, 3, dtype=torch.long)
    features = SimpleNamespace(take=lambda group: features, inputs=lambda packing, length, graph: [length, graph.name])
    results = decoder.results(ids, plan_packing(torch.ones(1, 3), 0), sequences, num_past=0, features=features)
    assert seen == [[4, "score_4_4"]] and results["logits"].shape[1] == 3


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_a_new_prompt_in_the_same_row_begins_anew(kind):
    decoder, sequences = start(0, **KINDS[kind])
    for seed, mask in enumerate((PROMPTS["chunks"], PROMPTS["bucket"], PROMPTS["long"])):
        sequences.resize(len(mask))
        ids = torch.randint(1, 9, mask.shape, generator=torch.Generator().manual_seed(seed))
        assert_columns(decoder, sequences, ids, mask, num_past=0, num_logits=1)
        sequences.resize(0)


@pytest.mark.parametrize(("num_blocks", "expected"), [(9, [2, 1]), (17, [2, 1]), (7, [1, 1, 1])])
def test_rows_of_a_pool_have_blocks_for_whole_sequences(num_blocks, expected):
    decoder, sequences = start(3, is_paged=True, num_blocks=num_blocks)
    assert [len(group.indices) for group in sequences.groups()] == expected
    assert_columns(decoder, sequences, torch.ones(3, 4).long(), PROMPTS["three rows"], num_past=0)


def test_without_pools_only_rows_count():
    loaded = Loaded(is_paged=True, extras=("num_new_tokens",))
    del loaded.program.states["tokens.0"]
    sequences = make_sequences(loaded, loaded.signature)
    sequences.resize(3)
    assert [group.rows for group in sequences.groups()] == [[0, 1], [0]]


def test_chunks_of_a_prompt_may_be_single_tokens():
    decoder, sequences = start(2, is_paged=True, prefill=(1,))
    assert_columns(decoder, sequences, torch.tensor([[3, 4], [5, 6]]), mask_of("10", "11"), num_past=0, num_logits=1)


def test_the_end_of_what_is_added_goes_through_a_short_chunk(monkeypatch):
    monkeypatch.setattr("optimum_neuron.engine.packing.MOST_PADDING", 1)
    decoder, sequences = start(1, extend=(2, 3))
    ids, mask = torch.arange(1, 7)[None], mask_of("111111")
    for past, length in ((0, 2), (2, 6)):
        assert_columns(decoder, sequences, ids[:, :length], mask[:, :length], num_past=past)
    assert sequences.loaded.runs[1:] == ["extend_3_3", "extend_2_2"]


def test_one_chunk_is_taken_as_it_is():
    """A copy of the logits of a prompt takes longer than a step."""
    results = {"logits": torch.ones(2, 3, 4)}
    assert _joined([results]) is results
    assert _joined([{"a": torch.ones(1, 1)}, {"a": torch.ones(1, 2), "b": torch.ones(1, 2)}])["a"].shape == (1, 3)


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
        results = steps(ids[:, column])
        assert torch.equal(results["logits"], expected(ids[:, : column + 1], mask)[:, -1:])
        whole = [group.is_whole and group.rows == [0, 1] for group in sequences.groups()]
        assert any(whole) or results.keys() == {"logits"}, "what is not read is not copied"
    assert sequences.loaded.num_prepared == 2 * len(list(sequences.groups())), "once for each number of slots"


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_a_row_may_have_no_new_token(kind):
    decoder, sequences = start(2, **KINDS[kind])
    ids = torch.randint(1, 9, (2, 8), generator=torch.Generator().manual_seed(4))
    mask = mask_of("11111111", "11100011")
    for past, length in ((0, 3), (3, 4), (4, 6), (6, 8)):
        sequences.loaded.runs.clear()
        assert_columns(decoder, sequences, ids[:, :length], mask[:, :length], num_past=past)
        if kind.endswith("one by one") and past == 3:
            assert roles(sequences) == {"decode"} and len(sequences.loaded.runs) == 1


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
    assert torch.equal(check([8], 4)["logits"], every[:, 6:7]) and sequences.loaded.runs[-1].startswith("decode")
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
    assert (decoder.num_slots, decoder.extend_length, start(1, extend=())[0].extend_length) == (SLOTS, EXTEND, 1)
    with pytest.raises(ShapeError) as failure:
        decoder.choose_bucket(5)
    assert failure.value.details["buckets"] == [2, 4]
    assert start(1, is_paged=True)[0].chunk_sizes == (2, 4)
