"""Compiled programs of deep models with many experts: no larger than those of small ones, so that 671B compiles."""

import pytest

from optimum_neuron.compiler import compile_graphs
from optimum_neuron.exporters import without_weights
from optimum_neuron.kinds import kind_of
from tests.models.mixtures import DEEPSEEK, GPT_OSS
from tests.tiny import SMALL, tiny_config

GROWN = {
    "deepseek_v3": (DEEPSEEK, {"num_hidden_layers": 9, "n_routed_experts": 64}),
    "gpt_oss": (
        GPT_OSS | {"num_local_experts": 8},
        {"num_hidden_layers": 8, "layer_types": ["sliding_attention", "full_attention"] * 4, "num_local_experts": 32},
    ),
}


def operators(folder, model_type, overrides):
    """Numbers of operators in the distinct subgraphs of a decode step, compiled without weights."""
    tiny_config(model_type, **overrides).save_pretrained(folder)
    options = {"instance_type": "trn1.32xlarge", "tensor_parallel_size": 2, "task": "text-generation"}
    source, config, _, _ = without_weights(folder, SMALL | options | {"batch_size": 1})
    plan = kind_of(config.task, model_type).plan(source, config, trust_remote_code=False)
    program = compile_graphs(plan.captures[-1:], target=None).program
    return sorted(len(subprogram.body.graph.nodes) for subprogram in program.subprograms.values())


@pytest.mark.full(days=4)
@pytest.mark.parametrize("model_type", GROWN)
def test_layers_and_experts_add_no_subgraphs(tmp_path, model_type):
    few, more = GROWN[model_type]
    few = few | {"num_hidden_layers": 4}
    assert operators(tmp_path / "few", model_type, few) == operators(tmp_path / "more", model_type, few | more)
