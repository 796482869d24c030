"""`replace_weights` and `from_model`, for every kind of model: folders, state dicts and models in memory."""

from __future__ import annotations

import pytest
import torch
import transformers

from optimum_neuron import (
    NeuronModelForCausalLM,
    NeuronModelForSeq2SeqLM,
    NeuronModelForSequenceClassification,
    NeuronModelForTextReranking,
    NeuronSentenceTransformer,
)
from optimum_neuron.errors import ConfigError, ModelError, WeightsError
from tests import seq2seq
from tests.encoders import VOCABULARY, randomize, save_tiny_encoder
from tests.raising import raises
from tests.tiny import SHAPES as DECODER_SHAPES, save_tiny

ENCODER_SHAPES = {"batch_size": 2, "sequence_length": 8, "optlevel": "1"}
IDS = torch.randint(3, VOCABULARY, (5, 8), generator=torch.Generator().manual_seed(1))


def save_classifier(folder):
    return save_tiny_encoder(folder, "bert", "text-classification")


def save_llama(folder):
    return save_tiny(folder, "llama", vocab_size=VOCABULARY)


def save_t5(folder):
    return seq2seq.save_tiny_seq2seq(folder, "t5")


KINDS = {
    NeuronModelForSequenceClassification: (save_classifier, ENCODER_SHAPES, {}),
    NeuronModelForSeq2SeqLM: (save_t5, seq2seq.SHAPES, {"decoder_input_ids": IDS[:, :3]}),
    NeuronModelForCausalLM: (save_llama, DECODER_SHAPES, {}),
}
"""Class to its checkpoint, shapes, and inputs besides `input_ids`."""


def load_original(model_class, folder, seed):
    """transformers' model of a class, with weights other than those in the folder."""
    kind = getattr(transformers, model_class.__name__.replace("Neuron", "Auto"))
    return randomize(kind.from_pretrained(folder, dtype=torch.float32).eval(), seed=seed)


@pytest.fixture(scope="module", params=KINDS)
def kind(request, tmp_path_factory):
    """A class with its checkpoint on disk, and another model of the same architecture in memory."""
    save, shapes, inputs = KINDS[request.param]
    folder = save(tmp_path_factory.mktemp("checkpoint") / "model")
    return request.param, folder, shapes, inputs, load_original(request.param, folder, seed=5)


@pytest.fixture
def model(kind):
    actual, folder, shapes, *_ = kind
    return actual.from_pretrained(folder, export=True, **shapes)


def check(model, original, inputs):
    with torch.no_grad():
        expected = original(input_ids=IDS, **inputs).logits
    torch.testing.assert_close(model(input_ids=IDS, **inputs).logits, expected, atol=2e-4, rtol=2e-4)


@pytest.mark.full(days=3)
@pytest.mark.parametrize("form", ["folder", "state dict", "model"])
def test_other_weights_in_every_form(kind, model, form, tmp_path):
    *_, inputs, other = kind
    other.save_pretrained(tmp_path / "tuned")
    model.replace_weights({"folder": tmp_path / "tuned", "state dict": other.state_dict(), "model": other}[form])
    check(model, other, inputs)
    assert model.describe()["validation"] == []
    model.save_pretrained(tmp_path / "saved")
    check(type(model).from_pretrained(tmp_path / "saved"), other, inputs)


def test_all_misfits_are_named_and_nothing_is_replaced(kind, model):
    *_, inputs, other = kind
    before = model(input_ids=IDS, **inputs).logits
    tensors = dict(other.state_dict())
    used = [name for group in model.prepared.weight_sources.values() for name in group if name in tensors]
    del tensors[used[0]]
    tensors[used[1]] = torch.zeros(7, 7, 7)
    tensors[used[2]] = tensors[used[2]].to(torch.int8)
    with pytest.raises(WeightsError) as excinfo:
        model.replace_weights(tensors)
    message = str(excinfo.value)
    assert f"{used[0]} is missing" in message
    assert f"{used[1]} has shape [7, 7, 7], compiled for" in message
    assert f"{used[2]} has int8, compiled for float32" in message
    assert len(excinfo.value.details["problems"]) == 3
    assert torch.equal(model(input_ids=IDS, **inputs).logits, before)


@pytest.mark.full(days=6)
def test_model_in_memory_is_compiled_and_unchanged(kind, tmp_path):
    model_class, _, shapes, inputs, other = kind
    module = type(other)(other.config).train()
    module.load_state_dict(other.state_dict())
    compiled_model = model_class.from_model(module, **shapes)
    assert module.training and all(parameter.requires_grad for parameter in module.parameters())
    assert all(torch.equal(tensor, other.state_dict()[name]) for name, tensor in module.state_dict().items())
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.zero_()  # as training goes on
    check(compiled_model, other, inputs)
    compiled_model.save_pretrained(tmp_path)
    check(model_class.from_pretrained(tmp_path), other, inputs)


def test_later_tensor_changes_are_ignored(kind, model):
    *_, inputs, other = kind
    tensors = {name: tensor.clone() for name, tensor in other.state_dict().items()}
    model.replace_weights(tensors)
    for tensor in tensors.values():
        tensor.zero_()
    check(model, other, inputs)


def test_module_of_another_architecture_is_refused(kind, model):
    *_, inputs, other = kind
    config = transformers.DistilBertConfig(dim=32, n_layers=1, n_heads=2, hidden_dim=32, vocab_size=VOCABULARY)
    with raises(WeightsError) as error:
        model.replace_weights(transformers.DistilBertModel(config))
    assert error.value.details["problems"][0].startswith("model_type='distilbert', ")
    shorter = type(other.config).from_dict(other.config.to_dict())
    setattr(shorter, next(n for n in ("num_decoder_layers", "num_hidden_layers") if hasattr(shorter, n)), 1)
    with torch.device("meta"), raises(WeightsError) as error:
        model.replace_weights(type(other)(shorter))
    assert "layers=1, " in " ".join(error.value.details["problems"])


@pytest.fixture(scope="module")
def classifier(tmp_path_factory):
    folder = save_classifier(tmp_path_factory.mktemp("bert") / "classifier")
    return NeuronModelForSequenceClassification.from_pretrained(folder, export=True, **ENCODER_SHAPES)


@pytest.mark.parametrize(
    ("weights", "error", "details"),
    [
        ({"classifier.bias": [1.0, 2.0]}, WeightsError, {"problems": ["classifier.bias is a list"]}),
        (None, WeightsError, {"type": "NoneType"}),
        ("no/such/model", ModelError, {"model": "no/such/model", "reason": "missing"}),
    ],
)
def test_weights_of_other_types(classifier, weights, error, details):
    with raises(error, **details):
        classifier.replace_weights(weights)


def test_no_weights_at_all(classifier):
    with raises(WeightsError) as error:
        classifier.replace_weights({})
    assert len(error.value.details["problems"]) == len(classifier.prepared.tensors.value.specs)


def test_tensors_without_values_are_error(classifier):
    specs = classifier.prepared.tensors.value.specs
    with raises(WeightsError) as error:
        classifier.replace_weights({name: torch.empty(spec.shape, device="meta") for name, spec in specs.items()})
    assert {problem.split()[-1] for problem in error.value.details["problems"]} == {"meta"}


def test_id_of_hub_is_found_in_its_cache(classifier, tmp_path, monkeypatch):
    import huggingface_hub

    commit = "0123456789abcdef" * 2 + "01234567"
    repository = tmp_path / "models--acme--tuned"
    (repository / "refs").mkdir(parents=True)
    (repository / "refs" / "main").write_text(commit)
    folder = save_classifier(repository / "snapshots" / commit)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    classifier.replace_weights("acme/tuned")
    assert classifier.source_folder == folder and classifier.describe()["model"] == "acme/tuned"


def test_every_copy_gets_weights(tmp_path, monkeypatch):
    monkeypatch.setenv("OPTIMUM_NEURON_INSTANCE", "inf2.24xlarge")
    monkeypatch.setenv("NEURON_RT_VISIBLE_CORES", "6-8")
    folder = save_classifier(tmp_path)
    options = ENCODER_SHAPES | {"data_parallel_mode": "all"}
    model = NeuronModelForSequenceClassification.from_pretrained(folder, export=True, **options)
    other = load_original(NeuronModelForSequenceClassification, folder, seed=3)
    model.replace_weights(other)
    for _ in range(3):  # single calls go to the cores in turn
        with torch.no_grad():
            torch.testing.assert_close(model(IDS[:2]).logits, other(IDS[:2]).logits, atol=1e-5, rtol=1e-5)
    check(model, other, {})


@pytest.mark.parametrize(
    ("output", "task", "auto_class"),
    [
        (NeuronSentenceTransformer, "feature-extraction", transformers.AutoModel),
        (NeuronModelForTextReranking, "text-classification", transformers.AutoModelForSequenceClassification),
    ],
)
def test_sentence_model_weights_are_replaced(output, task, auto_class, tmp_path):
    folder = save_tiny_encoder(tmp_path, "bert", task)
    model = output.from_pretrained(folder, export=True, **ENCODER_SHAPES)
    other = randomize(auto_class.from_pretrained(folder).eval(), seed=3)
    model.replace_weights(other.state_dict())
    with torch.no_grad():
        expected = next(iter(other(IDS).values()))
    actual = model(input_ids=IDS)["token_embeddings" if output is NeuronSentenceTransformer else "logits"]
    torch.testing.assert_close(actual, expected, atol=1e-5, rtol=1e-5)


class OwnLlama(transformers.LlamaForCausalLM):
    """Custom code, of which the configuration has no trace."""


def test_ignored_code_is_an_error(tmp_path):
    module = OwnLlama.from_pretrained(save_llama(tmp_path))
    with raises(ConfigError, type="OwnLlama"):
        NeuronModelForCausalLM.from_model(module, **DECODER_SHAPES)
    with raises(ConfigError, type="Linear"):
        NeuronModelForCausalLM.from_model(torch.nn.Linear(2, 2))
