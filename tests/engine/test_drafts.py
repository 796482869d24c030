"""What a draft gets to read: the hidden states that are new since it proposed, in the order of the tokens."""

from __future__ import annotations

import torch

from optimum_neuron.engine import Draft, SequenceDraft


class Recorder:
    """Proposes the numbers from 1 on, and notes what it read."""

    name = "recorder"

    def __init__(self, *reads):
        self.reads, self.seen, self.num_begun = reads, [], 0

    def begin(self):
        self.num_begun += 1
        return self

    def propose(self, ids_1C, hidden_NF):
        self.seen.append(hidden_NF)
        return [1, 2, 3]


def results(*values):
    return {"a": torch.tensor([[value] for value in values]), "b": torch.tensor([[-value] for value in values])}


def test_hidden_states_are_read_once_side_by_side():
    draft, ids = Recorder("a", "b"), torch.tensor([[5]])
    sequence = SequenceDraft(draft)
    sequence.keep(results(1, 2, 3), 2)
    sequence.keep(results(4))
    assert sequence.propose(ids, 2) == [1, 2]
    assert draft.seen[0].tolist() == [[1, -1], [2, -2], [4, -4]] and draft.num_begun == 1
    assert sequence.propose(ids, 1) == [1] and draft.seen[1] is None
    assert not sequence.reads_prompt and SequenceDraft(Recorder("a", "hidden_states.1")).reads_prompt


def test_a_draft_that_keeps_nothing_is_its_own():
    class Own(Draft):
        name = "own"

    draft = Own()
    assert draft.begin() is draft and isinstance(draft, Draft) and draft.reads == ()


def test_without_room_nothing_is_asked_and_nothing_is_lost():
    draft = Recorder("b")
    sequence = SequenceDraft(draft)
    sequence.keep(results(1))
    assert sequence.propose(torch.tensor([[5]]), 0) == [] and not draft.seen
    sequence.propose(torch.tensor([[5]]), 3)
    assert draft.seen[0].tolist() == [[-1]]
    reader_of_nothing = SequenceDraft(Recorder())
    reader_of_nothing.keep({})
    assert reader_of_nothing.propose(torch.tensor([[5]]), 1) == [1]
