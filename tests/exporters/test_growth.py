"""Compiled programs of deep models with many experts: no larger than those of small ones, so that 671B compiles."""

import pytest

from optimum_neuron.exporters import main_export
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
    """Distinct subgraphs of a compile without weights, with their operators."""
    tiny_config(model_type, **overrides).save_pretrained(folder)
    options = {"instance_type": "trn1.32xlarge", "tensor_parallel_size": 2, "batch_size": 1, "task": "text-generation"}
    report = main_export(folder, folder / "out", **SMALL | options)
    bodies = report.prepared.program.subprograms.values()
    return sorted(len(body.body.graph.nodes) for body in bodies)


@pytest.mark.parametrize("model_type", GROWN)
def test_layers_and_experts_add_no_subgraphs(tmp_path, model_type):
    few, more = GROWN[model_type]
    few = few | {"num_hidden_layers": 4}
    assert operators(tmp_path / "few", model_type, few) == operators(tmp_path / "more", model_type, few | more)
