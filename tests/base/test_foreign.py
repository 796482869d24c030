"""Attributes of other libraries' objects: declared ones are read, missing ones are None, undeclared ones are errors."""

from __future__ import annotations

import enum
import functools

import pytest
import torch
from transformers import BertConfig

from optimum_neuron.base.foreign import module_facts, name_of, parameter_facts, plain_value, tokenizer_facts
from optimum_neuron.base.model_facts import facts_of
from optimum_neuron.kinds import config_classes
from optimum_neuron.options.configuration import DEGREES, degrees_of


def test_declared_attributes_are_read_at_every_access():
    layer = torch.nn.Linear(2, 2, bias=False)
    facts = module_facts(layer)
    assert facts.weight is layer.weight and facts.bias is None and facts.config is None
    layer.bias = torch.nn.Parameter(torch.zeros(2))
    assert facts.bias is layer.bias
    assert module_facts(None).weight is None


def test_marks_of_parameters():
    parameter = torch.nn.Parameter(torch.zeros(2))
    assert parameter_facts(parameter).main_grad is None
    parameter.main_grad = torch.ones(2)
    assert parameter_facts(parameter).main_grad is parameter.main_grad


@pytest.mark.parametrize("facts", [module_facts(torch.nn.ReLU()), tokenizer_facts(None), facts_of(BertConfig())])
def test_an_attribute_that_is_not_declared_is_an_error(facts):
    with pytest.raises(AttributeError):
        _ = facts.wieght


def test_names_and_values():
    kind = enum.Enum("Kind", {"ONE": "one"})
    assert [plain_value(kind.ONE), plain_value("one"), plain_value(None)] == ["one", "one", None]
    partial = functools.partial(len)
    assert [name_of(len), name_of(torch.nn.ReLU), name_of(partial)] == ["len", "ReLU", str(partial)]


@pytest.mark.parametrize("kind", config_classes(), ids=lambda kind: kind.__name__)
def test_configurations_have_the_degrees_and_numbers_of_every_kind(kind):
    config = kind(task="fill-mask")
    assert degrees_of(config) == dict.fromkeys(DEGREES, 1)
    absent = (config.quantization, config.max_topk, config.max_loras, config.modules_to_not_convert)
    assert absent == (None, None, None, ()) and config.kv_cache_dtype == "auto"
    assert config.to_dict().keys() == set(kind.field_names())
