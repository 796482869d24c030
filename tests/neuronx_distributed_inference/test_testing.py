"""`utils.testing`: modules of one and two ranks, compiled, against torch on the CPU."""

import functools

import pytest
import torch
import torch.distributed as dist
from torch import nn

from optimum_neuron.errors import ConfigError
from optimum_neuron.neuronx_distributed import layers, mappings, operators, parallel_state
from optimum_neuron.neuronx_distributed_inference import testing
from tests.raising import raises

pytestmark = pytest.mark.filterwarnings("ignore:compiler flags without an effect")
HIDDEN, VOCABULARY = torch.zeros(3, 8), 16


class Head(nn.Module):
    """Logits whose vocabulary ranks divide, the likeliest tokens, and maxima of rows that ranks divide."""

    def __init__(self):
        super().__init__()
        self.head = layers.ColumnParallelLinear(8, VOCABULARY, bias=False, gather_output=False)

    def forward(self, hidden):
        logits = self.head(hidden)
        values, tokens = operators.topk(logits, 10, dim=1, gather_dim=-1)
        rows = operators.topk(logits, 2, dim=0, gather_dim=1)[1]
        best = operators.argmax(logits, dim=-1, gather_dim=1)
        of_columns = operators.argmax(logits, dim=0, gather_dim=1, keepdim=True)
        return mappings.gather_from_tensor_model_parallel_region(logits), values, tokens, rows, best, of_columns


class Reference(nn.Module):
    """The same of torch."""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(8, VOCABULARY, bias=False)

    def forward(self, hidden):
        logits = self.head(hidden)
        values, tokens = logits.topk(10, 1)
        return logits, values, tokens, logits.topk(2, 0)[1], logits.argmax(-1), logits.argmax(0, keepdim=True)


@pytest.mark.parametrize("tp_degree", [1, 2])
def test_modules_of_all_ranks_have_the_results_of_the_cpu(tp_degree, tmp_path):
    torch.manual_seed(0)
    reference, inputs = Reference(), [(torch.randn(3, 8),), (torch.randn(3, 8),)]
    folder, file = tmp_path / "workdir", tmp_path / "weights" / "checkpoint.pt"
    options = {"tp_degree": tp_degree, "compiler_workdir": folder, "checkpoint_path": file}
    model = testing.build_module(Head, [(HIDDEN,)], **options)
    testing.validate_accuracy(model, inputs, cpu_callable=reference)
    assert any(folder.iterdir()) and torch.equal(torch.load(file)["head.weight"], reference.head.weight)
    other = {"head.weight": torch.ones(VOCABULARY, 8)}
    assert testing.build_module(Head, [(HIDDEN,)], **options, dry_run=True) is None
    model = testing.build_module(Head, [(HIDDEN,)], **options, checkpoint_loader_fn=lambda path: other)
    logits = model(*inputs[0])[0]
    torch.testing.assert_close(logits, inputs[0][0].sum(1, keepdim=True).expand_as(logits))


def test_functions_have_their_constants(tmp_path):
    model = testing.build_function(
        functools.partial(torch.roll, shifts=2, dims=1), [(HIDDEN,)], compiler_workdir=tmp_path
    )
    rolled = functools.partial(torch.roll, shifts=2, dims=1)
    testing.validate_accuracy(model, [(torch.randn(3, 8),)], cpu_callable=rolled)
    with pytest.raises(AssertionError):
        testing.validate_accuracy(model, [(torch.randn(3, 8),)], cpu_callable=torch.neg)
    with raises(ConfigError, option="example_inputs"):
        testing.build_function(torch.neg, [(HIDDEN,), (HIDDEN,)])
    with raises(ConfigError, options=["expected_outputs", "cpu_callable"]):
        testing.validate_accuracy(model, [(HIDDEN,)])


def test_random_weights_are_saved_and_in_their_intervals(tmp_path):
    torch.manual_seed(0)
    model, path = testing.build_cpu_model(
        lambda size: nn.Sequential(nn.Linear(size, 64), nn.LayerNorm(64), nn.BatchNorm1d(64)),
        64,
        torch.bfloat16,
        tmp_path,
    )
    saved = torch.load(path)
    assert model[0].weight.dtype == torch.bfloat16 and model[1].weight.dtype == torch.float32
    assert saved["2.num_batches_tracked"].dtype == torch.long
    for name, most in (("0.weight", 0.05), ("0.bias", 0.25)):
        values = saved[name].float()
        assert torch.equal(values, model.state_dict()[name].float())
        # Uniform draws have the standard deviation of their interval.
        assert values.abs().max() <= most * (1 + 2**-8) and values.std() == pytest.approx(most / 3**0.5, rel=0.25)


def test_layers_of_a_reference_run_on_the_cpu(monkeypatch):
    monkeypatch.setenv("NXD_CPU_MODE", "0")
    testing.init_cpu_env()
    layer = layers.ColumnParallelLinear(8, 4)
    torch.testing.assert_close(layer(torch.ones(1, 8)), layer.weight.sum(1)[None] + layer.bias)
    assert parallel_state.cpu_mode() and dist.get_world_size() == 1
    testing.destroy_cpu_env()
    assert not parallel_state.cpu_mode() and not dist.is_initialized()
