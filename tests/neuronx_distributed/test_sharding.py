"""Whole checkpoints divided among ranks: the rows of torch's own layers are the reference."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from optimum_neuron.errors import ShapeError
from optimum_neuron.neuronx_distributed import attributes, layers, qkv_linear, sharding, simulated


class Heads(nn.Module):
    """Queries, keys, and values in one layer; its hook repeats the head of keys and values for each rank."""

    def __init__(self, sizes: list[int], copies: int) -> None:
        super().__init__()
        self.sizes, self.copies = sizes, copies
        queries, keys, values = sizes[0], sizes[1] * copies, sizes[2] * copies
        self.qkv = layers.ColumnParallelLinear(8, queries + keys + values, bias=False, gather_output=False)
        facts = {
            "fused_qkv": True,
            "num_attention_heads": queries // 4,
            "num_key_value_heads": keys // 4,
            "head_dim": 4,
        }
        vars(self.qkv.weight).update(facts)

    def preshard_hook(self, model_state_dict: dict[str, torch.Tensor], prefix: str) -> None:
        name = prefix.replace("weight", "qkv.weight")
        query, key, value = model_state_dict[name].split(self.sizes)
        model_state_dict[name] = torch.cat([query, key.repeat(self.copies, 1), value.repeat(self.copies, 1)])


def test_rows_of_fused_queries_keys_and_values_are_divided_each() -> None:
    torch.manual_seed(0)
    whole = nn.Linear(8, 24, bias=False)
    q, k, v = whole.weight.detach().split([16, 4, 4])
    x = torch.rand(3, 8)
    with simulated.NxDParallelState(world_size=2, tensor_model_parallel_size=2):
        model = nn.ModuleDict({"attention": Heads([16, 4, 4], 2)})
        shards = sharding.shard_checkpoint({"attention.qkv.weight": whole.weight.detach()}, model)
        plain = qkv_linear.GQAQKVColumnParallelLinear(8, [16, 4], bias=False, kv_size_multiplier=1)
        halves = [attributes.part_of(whole.weight.detach(), plain.weight_qkv, rank) for rank in range(2)]
        with pytest.raises(ShapeError):
            attributes.part_of(whole.weight.detach()[1:], plain.weight_qkv, 0)
    for rank, shard in enumerate(shards):
        expected = [x @ q.chunk(2)[rank].T, x @ k.T, x @ v.T]  # each rank has all keys
        torch.testing.assert_close(x @ shard["attention.qkv.weight"].T, torch.cat(expected, -1))
        torch.testing.assert_close(halves[rank], torch.cat([one.chunk(2)[rank] for one in (q, k, v)]))
