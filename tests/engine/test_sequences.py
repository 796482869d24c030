"""State of sequences: handles that move, rows that are copied, sets that are taken and given back."""

from __future__ import annotations

import gc
from types import SimpleNamespace

import pytest
import torch

from optimum_neuron.base.core import TensorSpec
from optimum_neuron.engine import Sequences, Signature, StateSignature
from optimum_neuron.runtime import State

SIGNATURE = Signature(
    roles={},
    states={
        "own": StateSignature(axes=("batch_size", "num_slots")),
        "source": StateSignature(axes=("batch_size", "num_states"), is_shared=True),
    },
)


class Loaded:
    """A program of two rows, whose only graph returns the input plus the first slot of each row's state."""

    executor, num_alone = "newest", 0

    def __init__(self):
        spec = TensorSpec(shape=(2, 3), dtype="float32")
        graph = SimpleNamespace(inputs={"x": TensorSpec(shape=(2,), dtype="float32")})
        self.program = SimpleNamespace(states={"own.0": spec, "source.0": spec}, graphs={"add": graph})
        self.given_back = []

    def take_state(self, beside=None):
        state = State(torch.zeros(2, 3) for _ in range(2))
        self.num_alone += beside is None
        state.executor = self.num_alone if beside is None else beside.executor
        return state

    def give_back(self, state):
        self.given_back.append(state)

    def run(self, graph, inputs, state):
        self.last = {"y": inputs[0] + state[0][:, 0]}
        return self.last


def marked():
    """Return five sequences, each marked with its number in both states."""
    result = Sequences(Loaded(), SIGNATURE)
    result.resize(5)
    for group in result.groups():
        for index, row in zip(group.indices, group.rows, strict=True):
            for tensor in group.state:
                tensor[row] = index
    return result


@pytest.fixture
def sequences():
    return marked()


def marks(sequences):
    """Mark of each sequence."""
    return sequences.run(lambda group: group.run("add", [group.take(torch.zeros(len(sequences)))]))["y"].tolist()


def test_batches_are_padded_to_sets_of_rows(sequences):
    assert [group.indices for group in sequences.groups()] == [[0, 1], [2, 3], [4]]
    assert len(sequences) == 5 and marks(sequences) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    "order", [[4, 3, 2, 1, 0], [4, 4, 0, 3, 1], [2, 2, 2, 2, 2], [0, 1], [1, 0], [3], [1, 1, 4, 4, 0, 0, 2]]
)
def test_sequences_continue_copies_of_others(sequences, order):
    sequences.select(order)
    assert marks(sequences) == order and len(sequences._sets) == max(3, -(-len(order) // 2))
    sequences.select(list(range(len(order))))
    assert marks(sequences) == order


def test_permutation_copies_nothing(sequences):
    (first, *_) = (group.state for group in sequences.groups())
    before = [tensor.clone() for tensor in first]
    sequences.select([4, 3, 2, 1, 0])
    assert all(torch.equal(tensor, old) for tensor, old in zip(first, before, strict=True))


def test_sequences_share_their_source(sequences):
    sequences.note_sources([0, 0, 1, 1, 2])
    sequences.select([1, 1, 2, 3, 4])
    (group, *_) = sequences.groups()
    (own, source), row = group.state, group.rows[group.indices.index(1)]
    assert own[row, 0] == 1 and source[row, 0] == 0, "what was there is equal by the note"


def sources(sequences):
    """Mark of each sequence's source."""
    return sequences.run(lambda group: {"y": group.state[1][group.rows, 0]})["y"].tolist()


def test_a_copy_in_the_row_of_another_source_has_its_own(sequences):
    sequences.note_sources([0, 0, 1, 1, 2])
    sequences.select([1, 2, 2, 3, 4])
    assert marks(sequences) == sources(sequences) == [1, 2, 2, 3, 4]
    sequences.select([0, 0, 1, 3, 4])
    assert marks(sequences) == sources(sequences) == [1, 1, 2, 3, 4]


def test_copy_has_separate_state(sequences):
    copied = sequences.copy()
    for group in sequences.groups():
        group.state[0].fill_(9)
    assert marks(copied) == [0, 1, 2, 3, 4] and marks(sequences) == [9] * 5


def test_sequences_keep_their_host_code_until_it_is_renewed(sequences):
    for group in sequences.groups():
        group.state.executor = "older"
    copied = sequences.copy()
    assert {group.state.executor for group in copied.groups()} == {"older"}
    copied.renew()
    assert {group.state.executor for group in copied.groups()} == {"newest"}
    assert {group.state.executor for group in sequences.groups()} == {"older"}


def test_all_sequences_in_their_rows_are_not_copied(sequences):
    sequences.resize(2)
    (group,) = sequences.groups()
    x = torch.zeros(2)
    assert group.take(x) is x and group.run("add", [x]) is sequences.loaded.last
    results = {"y": x}
    assert sequences.run(lambda group: results) is results


def test_a_sequence_of_another_cache_is_adopted():
    """What may be no numbers is cleared with the cache that has it now."""
    sequences = marked()
    other = sequences.copy()
    other.use_adapters([0, 1, 2, 3, 4])
    other.note_not_finite()
    sequences.adopt(1, other, 4)
    assert marks(sequences) == [0, 4, 2, 3, 4] and marks(other) == [0, 1, 2, 3, 4]
    assert [group.adapters for group in sequences.groups()] == [[0, 4], [0, 0], [0]]
    assert sources(sequences) == marks(sequences)
    loaded = sequences.loaded
    del sequences
    gc.collect()
    assert len(loaded.given_back) == 3 and not any(tensor.any() for state in loaded.given_back for tensor in state)


def test_added_sequences_use_free_rows(sequences):
    sequences.resize(2)
    sequences.resize(7)
    assert [len(group.indices) for group in sequences.groups()] == [2, 2, 2, 1]
    assert {group.state.executor for group in sequences.groups()} == {1}


@pytest.mark.parametrize("is_finite", [True, False])
def test_released_state_has_no_non_finite_numbers(is_finite):
    loaded = Loaded()
    sequences = Sequences(loaded, SIGNATURE)
    sequences.resize(3)
    for group in sequences.groups():
        group.state[0].fill_(5 if is_finite else torch.nan)
    if not is_finite:
        sequences.note_not_finite()
    del sequences, group
    gc.collect()
    assert [state[0].unique().tolist() for state in loaded.given_back] == [[5.0 if is_finite else 0.0]] * 2
