"""Outputs that torch.jit.trace cannot return come back as the model returns them, also from a file."""

import pytest
import torch
from transformers import BertConfig, BertModel

from optimum_neuron.errors import ConfigError
from optimum_neuron.tracing import DataParallel, trace
from optimum_neuron.tracing.packing import is_traceable
from tests.tracing.conftest import FAST

STRUCTURES = {
    "mixed": lambda x: {"a": x + 1, "b": (x, x * 2)},
    "unequal tuples": lambda x: {"a": (x,), "b": (x + 1, x + 2)},
    "dictionaries": lambda x: {"a": {"c": x + 1}, "b": [x, (x + 2,)]},
    "numbers": lambda x: {0: x + 1, 7: x + 2},
    "list of tuples": lambda x: [(x, x + 1), (x + 2, x + 3)],
    "empty": lambda x: (x + 1, [], {}, ()),
}


@pytest.mark.parametrize("function", STRUCTURES.values(), ids=STRUCTURES)
def test_any_nesting_is_returned(function, tmp_path):
    x = torch.rand(3)
    traced_model = trace(function, torch.rand(3), compiler_args=FAST)
    torch.testing.assert_close(traced_model(x), function(x))
    torch.jit.save(traced_model, tmp_path / "packed.pt")
    torch.testing.assert_close(torch.jit.load(tmp_path / "packed.pt")(x), function(x))


def test_every_layers_states_in_dictionary_of_transformer():
    sizes = {"hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 2, "intermediate_size": 64}
    model = BertModel(BertConfig(vocab_size=100, **sizes)).eval()
    model.config.output_hidden_states = True
    tokens, mask = torch.arange(8).view(1, 8), torch.ones(1, 8, dtype=torch.int64)
    traced_model = trace(model, (tokens, mask), compiler_args=FAST)
    result, expected = traced_model(input_ids=tokens, attention_mask=mask), model(tokens, mask)
    assert list(result) == list(expected) and len(result["hidden_states"]) == 4
    torch.testing.assert_close(result, dict(expected))


def test_nested_inputs_and_parallel_calls():
    def function(x, parts):
        return {"sum": x + parts["a"], "all": (x, parts["a"])}

    traced_model = trace(function, (torch.rand(2, 3), {"a": torch.rand(2, 3)}), compiler_args=FAST)
    x, parts = torch.rand(4, 3), {"a": torch.rand(4, 3)}
    torch.testing.assert_close(DataParallel(traced_model, device_ids=[0, 1])(x, parts), function(x, parts))


def test_unsupported_torchscript_keys_are_refused():
    with pytest.raises(ConfigError) as excinfo:
        trace(lambda x: {"a": x + 1, 1: x + 2}, torch.rand(2), compiler_args=FAST)
    assert excinfo.value.details == {"keys": ["'a'", "1"]}


def test_recordable_structures_are_not_packed():
    assert is_traceable(({"a": 0, "b": 1}, [2, 3], (4, ())))
    assert is_traceable({"a": (0, 1), "b": (2, 3)})
    assert not is_traceable({})
