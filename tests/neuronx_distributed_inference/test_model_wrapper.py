"""Programs of NxD Inference: flags that the compiler here reads, buckets, and calls of incomplete batches."""

import pytest
import torch

from optimum_neuron.compiler import parse_flags
from optimum_neuron.errors import ConfigError, ShapeError
from optimum_neuron.neuronx_distributed_inference import InferenceConfig, NeuronConfig
from optimum_neuron.neuronx_distributed_inference.model_wrapper import ModelWrapper
from optimum_neuron.neuronx_distributed_inference.program_flags import (
    CONTEXT_ENCODING_MODEL_TAG,
    FUSED_SPECULATION_MODEL_TAG,
    TOKEN_GENERATION_MODEL_TAG,
)
from tests.raising import raises


class Rows(torch.nn.Module):
    """Returns its tokens, the number of real columns, and the sequences, row by row."""

    def __init__(self, config):
        super().__init__()
        self.calls = []

    def forward(self, ids, mask, positions, rows, *others):
        self.calls.append((tuple(ids.shape), tuple(mask.shape), rows.tolist()))
        return torch.stack([ids[:, 0], mask.sum(1), rows], 1)


def wrapper(tag="", **options):
    return ModelWrapper(InferenceConfig(NeuronConfig(**options)), Rows, tag=tag)


def inputs(num_rows, num_columns, rows):
    ids = 10 * torch.tensor(rows)[:, None] + torch.zeros(num_rows, num_columns, dtype=torch.long)
    positions = torch.arange(num_columns).expand(num_rows, -1)
    return ids, torch.ones(num_rows, num_columns, dtype=torch.long), positions, torch.tensor(rows)


@pytest.mark.parametrize(
    ("tag", "optlevel"), [(CONTEXT_ENCODING_MODEL_TAG, "1"), (TOKEN_GENERATION_MODEL_TAG, "2"), ("", "2")]
)
def test_the_compiler_reads_the_flags(tag, optlevel):
    options = {"quantized": True, "quantized_checkpoints_path": "q", "quantization_dtype": "f8e4m3", "target": "trn2"}
    flags = parse_flags(wrapper(tag, layer_boundary_markers=True, scratchpad_page_size=1024, **options).compiler_args)
    assert (flags.optlevel, flags.target, flags.auto_cast) == (optlevel, "trn2", "none")


def test_prompts_and_steps_are_padded_to_their_bucket():
    prompts = wrapper(CONTEXT_ENCODING_MODEL_TAG, seq_len=64, buckets=[16, 32, 64])
    prompts.load_state_dict({})
    assert prompts(*inputs(1, 9, [0])).tolist() == [[0, 9, 0]]
    assert prompts.model.calls == [((1, 16), (1, 16), [0])]
    assert [one.shape[1] for one in prompts.pad_inputs(*inputs(1, 9, [0]), pad_type="second_fit")[:3]] == [32] * 3
    steps = wrapper(FUSED_SPECULATION_MODEL_TAG, seq_len=64, buckets=[16, 32, 64], speculation_length=5)
    ids, mask, positions, rows = inputs(1, 12, [0])
    padded = steps.pad_inputs(ids[:, -1:], mask, positions[:, -1:], rows)
    assert padded[0].shape == (1, 1) and padded[1].shape == (1, 32)


def test_each_prompt_of_a_batch_has_its_own_bucket():
    prompts = wrapper(CONTEXT_ENCODING_MODEL_TAG, seq_len=64, buckets=[16, 32, 64])
    ids, mask, positions, rows = inputs(2, 40, [7, 8])
    mask[0, 9:] = ids[0, 9:] = 0
    positions = positions * mask
    for row, (length, bucket) in enumerate([(9, 16), (40, 64)]):
        own = prompts.vllm_cte_repadding([one[row : row + 1] for one in (ids, mask, positions, rows)])
        assert [one.shape for one in own] == [(1, bucket)] * 3 + [(1,)]
        assert torch.equal(own[0][:, :length], ids[row : row + 1, :length]) and int(own[1].sum()) == length
        assert own[2].tolist() == [[*range(length), *[1] * (bucket - length)]]


def test_rows_of_incomplete_batches_come_back_in_their_order():
    steps = wrapper(TOKEN_GENERATION_MODEL_TAG, batch_size=4, seq_len=32, buckets=[32])
    steps.load_state_dict({})
    assert steps(*inputs(2, 5, [3, 1])).tolist() == [[30, 5, 3], [10, 5, 1]]
    assert steps(*inputs(5, 5, [4, 3, 2, 1, 0])).tolist() == [[10 * row, 5, row] for row in (4, 3, 2, 1, 0)]
    # Whole batches are called as they are; what is left is completed with other sequences.
    assert [rows for *_, rows in steps.model.calls] == [[0, 1, 2, 3], [4, 3, 2, 1], [0, 1, 2, 3]]


def test_batches_have_buckets_of_their_own():
    options = {"batch_size": 4, "seq_len": 64, "token_generation_batches": [2]}
    steps = wrapper(TOKEN_GENERATION_MODEL_TAG, **options, buckets=[[4, 32], [4, 64], [2, 32], [2, 64]])
    steps.load_state_dict({})
    assert steps(*inputs(2, 20, [1, 0])).tolist() == [[10, 20, 1], [0, 20, 0]]
    assert steps.model.calls == [((2, 20), (2, 32), [1, 0])]
    assert [one[1].shape for one in steps.input_generator()] == [(4, 32), (4, 64), (2, 32), (2, 64)]
    with raises(ShapeError, length=65):
        steps(*inputs(2, 65, [0, 1]))


def test_wrong_calls_are_refused():
    steps = wrapper(TOKEN_GENERATION_MODEL_TAG, seq_len=32, buckets=[16, 32])
    with raises(ConfigError, tag=TOKEN_GENERATION_MODEL_TAG):
        steps(*inputs(1, 5, [0]))
    with raises(ConfigError, value="third_fit"):
        steps.pad_inputs(*inputs(1, 5, [0]), pad_type="third_fit")
    with raises(ConfigError, option="is_medusa"):
        wrapper(is_medusa=True).input_generator()
    prompts = wrapper(CONTEXT_ENCODING_MODEL_TAG, max_context_length=16, seq_len=32, buckets=[16])
    with raises(ShapeError, limit=16):
        prompts.pad_inputs(*inputs(1, 20, [0]), pad_type="max")
