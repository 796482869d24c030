"""Every public name of transformers' models works on a compiled one, or is refused with its reason."""

from __future__ import annotations

import pytest
import torch
import transformers

from optimum_neuron import NeuronModelForCausalLM, NeuronModelForSeq2SeqLM, NeuronModelForSequenceClassification
from optimum_neuron.errors import ConfigError, UnsupportedAttributeError, WeightsError
from tests import seq2seq
from tests.encoders import save_tiny_encoder, tiny_shapes
from tests.raising import raises

IDS = torch.full((1, 4), 5)


@pytest.fixture(scope="module")
def models(model, tmp_path_factory, environment):
    folder = tmp_path_factory.mktemp("interface")
    bert = save_tiny_encoder(folder / "bert", "bert", "text-classification")
    shapes = tiny_shapes("bert", "text-classification")
    t5 = seq2seq.save_tiny_seq2seq(folder / "t5", "t5")
    return {
        "decoder": model,
        "encoder": NeuronModelForSequenceClassification.from_pretrained(bert, export=True, **shapes),
        "seq2seq": NeuronModelForSeq2SeqLM.from_pretrained(t5, export=True, **seq2seq.SHAPES),
    }


@pytest.mark.parametrize("kind", ["decoder", "encoder", "seq2seq"])
def test_every_public_name_works_or_is_refused(models, kind):
    model, bare = models[kind], []
    for name in sorted(name for name in dir(transformers.PreTrainedModel) if not name.startswith("_")):
        try:
            getattr(model, name)
        except UnsupportedAttributeError as error:
            assert error.details["attribute"] == name and error.hint and not hasattr(model, name)
        except AttributeError:
            bare.append(name)
    assert bare == []


@pytest.mark.parametrize("kind", ["decoder", "encoder", "seq2seq"])
def test_calls_that_change_nothing_mean_the_same(models, kind):
    model = models[kind]
    for same in (
        model.eval(),
        model.train(False),
        model.cpu(),
        model.float(),
        model.to("cpu"),
        model.to(torch.float32),
    ):
        assert same is model
    assert model.requires_grad_(False) is model and model.type(torch.float32) is model
    assert model.training is False and model.is_gradient_checkpointing is False
    assert list(model.modules()) == [model] and list(model.named_modules()) == [("", model)]
    assert list(model.children()) == list(model.named_children()) == list(model.buffers()) == []
    assert model.zero_grad() is model.gradient_checkpointing_disable() is None
    assert str(model.device) == "cpu" and model.dtype == torch.float32
    assert (model.generation_config is not None) == model.can_generate()
    name, tensor = next(model.named_parameters(prefix="a"))
    assert torch.equal(model.get_parameter(name.removeprefix("a.")), tensor) and list(model.parameters(False)) == []


CALLS = {
    "half": lambda model: model.half(),
    "bfloat16": lambda model: model.bfloat16(),
    "double": lambda model: model.double(),
    "cuda": lambda model: model.cuda(),
    "cuda 0": lambda model: model.cuda(0),
    "train": lambda model: model.train(),
    "requires_grad_": lambda model: model.requires_grad_(),
    "get_parameter": lambda model: model.get_parameter("no.such.weight"),
    "resize_token_embeddings": lambda model: model.resize_token_embeddings(300),
    "get_input_embeddings": lambda model: model.get_input_embeddings(),
    "gradient_checkpointing_enable": lambda model: model.gradient_checkpointing_enable(),
    "register_forward_hook": lambda model: model.register_forward_hook(print),
}


@pytest.mark.parametrize("name", CALLS)
def test_calls_that_would_change_the_program_are_refused(model, name):
    with pytest.raises(ConfigError) as error:
        CALLS[name](model)
    assert error.value.hint


def test_other_names_are_plain_attribute_errors(model):
    with pytest.raises(AttributeError) as error:
        model.no_such_name  # noqa: B018
    assert not isinstance(error.value, UnsupportedAttributeError)
    assert getattr(model, "hf_device_map", None) is None


def test_load_state_dict(export_folder, original):
    model = NeuronModelForCausalLM.from_pretrained(export_folder)
    before = model(IDS).logits
    state = {name: 0.5 * tensor for name, tensor in original.state_dict().items()}
    assert model.load_state_dict(state) == ([], [])
    halved = model(IDS).logits
    assert not torch.equal(halved, before)
    name = next(iter(state))
    for wrong, details in (
        ({**state, "x": torch.ones(1)}, {"missing": [], "unknown": ["x"]}),
        ({key: tensor for key, tensor in state.items() if key != name}, {"missing": [name], "unknown": []}),
    ):
        with raises(WeightsError, **details):
            model.load_state_dict(wrong)
    assert model.load_state_dict({name: original.state_dict()[name], "x": torch.ones(1)}, strict=False)[1] == ["x"]
    assert not torch.equal(model(IDS).logits, halved)
    assert model.load_state_dict(original.state_dict()) == ([], []) and torch.equal(model(IDS).logits, before)
    model.close()
