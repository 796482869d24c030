"""How tensor parallelism divides modules."""

import pytest
import torch
from torch import nn
from transformers import Llama4TextConfig
from transformers.models.llama4.modeling_llama4 import Llama4TextExperts

from optimum_neuron.errors import ConfigError, ModelError
from optimum_neuron.models import require_group_size, split_module
from optimum_neuron.models.common import Experts, MixtureConfig
from optimum_neuron.models.heads import head_layout


@pytest.mark.parametrize(
    ("num_heads", "num_kv_heads", "group_size"), [(8, 8, 4), (8, 2, 4), (9, 3, 2), (9, 3, 8), (32, 8, 24), (64, 8, 64)]
)
def test_every_query_head_is_once_on_a_core_with_its_key_head(num_heads, num_kv_heads, group_size):
    layout = head_layout(num_heads, num_kv_heads, group_size)
    assert sorted(head for own in layout.queries for head in own if head >= 0) == list(range(num_heads))
    num_queries, num_keys = layout.num_local
    assert {(len(q), len(k)) for q, k in zip(layout.queries, layout.keys, strict=True)} == {(num_queries, num_keys)}
    per_key = num_heads // num_kv_heads
    for queries, keys in zip(layout.queries, layout.keys, strict=True):
        for place, head in enumerate(queries):
            assert head < 0 or keys[place // (num_queries // num_keys)] == head // per_key


@pytest.mark.parametrize(("group_size", "num_copies"), [(2, 1), (4, 2), (8, 4)])
def test_key_heads_are_copied_only_where_cores_do_not_divide_them(group_size, num_copies):
    keys = [key for own in head_layout(8, 2, group_size).keys for key in own]
    assert all(keys.count(key) == num_copies for key in (0, 1))


@pytest.mark.parametrize("layout", [head_layout(4, 4, 2), head_layout(8, 2, 4), head_layout(9, 3, 2)])
def test_heads_in_one_weight_are_those_of_each_core(layout):
    width, num_heads, num_keys = 2, layout.num_heads, layout.num_kv_heads
    query, key, value = (torch.arange(1, 1 + n * width) + 100 * at for at, n in enumerate((num_heads, *[num_keys] * 2)))
    groups = zip(query.chunk(num_keys), key.chunk(num_keys), value.chunk(num_keys), strict=True)
    grouped = torch.cat([part for group in groups for part in group])
    num_local = layout.num_local[1]
    for rank in range(len(layout.queries)):
        own_query = layout.of_queries(width).part(query, 0, rank)
        own_key, own_value = (layout.of_keys(width).part(tensor, 0, rank) for tensor in (key, value))
        packed = layout.packed(width).part(torch.cat([query, key, value]), 0, rank)
        assert packed.tolist() == [*own_query.tolist(), *own_key.tolist(), *own_value.tolist()]
        parts = zip(*(tensor.chunk(num_local) for tensor in (own_query, own_key, own_value)), strict=True)
        assert layout.grouped(width).part(grouped, 0, rank).tolist() == torch.cat([*sum(parts, ())]).tolist()


class Toy(nn.Module):
    def __init__(self):
        super().__init__()
        with torch.device("meta"):
            self.up, self.down = nn.Linear(6, 10), nn.Linear(10, 6)


def test_a_module_gets_the_shapes_of_one_core():
    toy = Toy()
    shards = split_module(toy, {"up": "columns", "down": "rows"}, num_heads=1, num_kv_heads=1, group_size=4)
    assert (toy.up.weight.shape, toy.down.weight.shape, toy.down.bias.shape) == ((3, 6), (6, 3), (6,))
    assert set(shards.of_weights) == {"up.weight", "up.bias", "down.weight", "down.bias"}
    assert shards.of_weights["down.weight"].dim == 1


class Sparse(nn.Module):
    def __init__(self, num_experts, width):
        super().__init__()
        sizes = {"num_experts": num_experts, "experts_per_token": 2, "intermediate_size": width, "bias": True}
        with torch.device("meta"):
            self.experts = Experts(16, MixtureConfig(**sizes))


def test_experts_are_divided_by_width_or_over_cores_where_they_are_narrow():
    plan, options = {"experts": "experts"}, {"num_heads": 1, "num_kv_heads": 1, "group_size": 4}
    wide, narrow, few = Sparse(8, 128), Sparse(6, 64), Sparse(2, 64)
    for module in (wide, narrow, few):
        split_module(module, plan, **options)
    assert wide.experts.gate_up_proj.shape == (8, 2 * 32, 16) and wide.experts.down_proj.shape == (8, 16, 32)
    assert narrow.experts.gate_up_proj.shape == (2, 2 * 64, 16) and narrow.experts.down_proj_bias.shape == (2, 16)
    assert narrow.experts.num_experts == 2
    assert few.experts.down_proj.shape == (2, 16, 16)


def test_whole_experts_are_views_of_the_file():
    module = Sparse(8, 64)
    shards = split_module(
        module, {"experts": "experts_over_cores"}, num_heads=1, num_kv_heads=1, group_size=4
    ).of_weights
    whole = torch.arange(8.0)[:, None, None].expand(8, 16, 64).contiguous()
    part = shards["experts.down_proj"].part([whole], 3)
    assert part.data_ptr() == whole[6].data_ptr() and part.shape == (2, 16, 64)


def test_parts_of_transformers_llama4_experts_sum_to_the_whole():
    config = Llama4TextConfig(hidden_size=8, intermediate_size=10, num_local_experts=2)
    torch.manual_seed(0)
    whole, holder = Llama4TextExperts(config), nn.Module()
    for parameter in whole.parameters():
        nn.init.normal_(parameter)
    with torch.device("meta"):
        holder.experts = Llama4TextExperts(config)
    shards = split_module(holder, {"experts": "experts"}, num_heads=1, num_kv_heads=1, group_size=4).of_weights
    x, total = torch.randn(2 * 3, 8), torch.zeros(2 * 3, 8)
    for rank in range(4):
        own = Llama4TextExperts(config)
        for name, parameter in whole.named_parameters():
            part = shards[f"experts.{name}"].part([parameter.detach()], rank)
            assert part.shape == getattr(holder.experts, name).shape
            setattr(own, name, nn.Parameter(part))
        total += own(x).detach()
    torch.testing.assert_close(total, whole(x).detach())


def test_a_plan_that_names_no_module_is_refused():
    with pytest.raises(ModelError) as caught:
        split_module(Toy(), {"layers.*.up": "columns"}, num_heads=1, num_kv_heads=1, group_size=2)
    assert caught.value.details["plan"] == {"layers.*.up": "columns"}


def test_a_plan_that_divides_a_module_without_weight_is_refused():
    with pytest.raises(ModelError) as caught:
        split_module(nn.Sequential(Toy()), {"*": "columns"}, num_heads=1, num_kv_heads=1, group_size=2)
    assert caught.value.details["module"] == "Toy"


def test_an_unknown_style_is_refused():
    with pytest.raises(ModelError) as caught:
        split_module(Toy(), {"up": "diagonal"}, num_heads=1, num_kv_heads=1, group_size=2)
    assert caught.value.details["styles"] == ["diagonal"]


def test_more_cores_than_heads_are_refused():
    with pytest.raises(ConfigError) as caught:
        require_group_size(8, num_heads=4, model_type="llama")
    assert caught.value.details["num_heads"] == 4
