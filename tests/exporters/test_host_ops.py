"""`allow_host_ops` at export: unsupported operators run on the host if allowed by name, and are reported."""

from __future__ import annotations

import json

import pytest
import torch
import transformers

from optimum_neuron import NeuronConfig, NeuronModelForSequenceClassification, check_model
from optimum_neuron.errors import ConfigError, UnsupportedOperatorError
from optimum_neuron.exporters.request import request_fields
from tests.encoders import VOCABULARY, save_tiny_encoder
from tests.raising import raises, refused_operators

SHAPES = {"batch_size": 2, "sequence_length": 8, "optlevel": "1"}
IDS = torch.randint(3, VOCABULARY, (3, 8), generator=torch.Generator().manual_seed(1))


class Sorted(transformers.BertForSequenceClassification):
    """Classes in the order of their scores, which the chip cannot sort."""

    def forward(self, *args, **kwargs):
        output = super().forward(*args, **kwargs)
        output.logits = torch.sort(output.logits, dim=-1).values * 2
        return output


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    folder = save_tiny_encoder(tmp_path_factory.mktemp("bert") / "checkpoint", "bert", "text-classification")
    return Sorted.from_pretrained(folder).eval()


def export(original, **options):
    return NeuronModelForSequenceClassification.from_model(original, **SHAPES, **options)


@pytest.fixture(scope="module")
def model(original, environment):
    return export(original, allow_host_ops=["aten::sort"])


def test_host_needs_permission(original):
    for options in ({}, {"allow_host_ops": ["aten.mul"]}):
        with raises(UnsupportedOperatorError) as error:
            export(original, **options)
        assert list(refused_operators(error)) == ["aten.sort"]


def test_allowed_operator_runs_and_its_share_is_reported(model, original, tmp_path):
    with torch.no_grad():
        torch.testing.assert_close(model(IDS).logits, original(IDS).logits, atol=1e-5, rtol=1e-5)
    share = model.describe()["placed_share"]
    assert 0.9 < share["value"] < 1 and share["host_ops"] == ["aten.sort"]
    assert "of the FLOPs" in share["reason"] and "allowed on the host: aten.sort" in share["reason"]
    assert model.neuron_config.allow_host_ops == ("aten.sort",)
    model.save_pretrained(tmp_path)
    saved = json.loads((tmp_path / "neuron_config.json").read_text())
    assert saved["neuron"]["allow_host_ops"] == ["aten.sort"]
    assert saved["artifact"]["placed_share"] == share
    for arguments in ({}, {"allow_host_ops": ["aten.sort"]}, {"allow_host_ops": {"aten::sort"}}):
        loaded_model = NeuronModelForSequenceClassification.from_pretrained(tmp_path, **arguments)
        assert loaded_model.describe()["placed_share"] == share
        assert torch.equal(loaded_model(IDS).logits, model(IDS).logits)
    with raises(ConfigError, differences=["allow_host_ops=['aten.topk'], compiled with ['aten.sort']"]):
        NeuronModelForSequenceClassification.from_pretrained(tmp_path, allow_host_ops=["aten.topk"])


def test_model_without_host_operators_reports_it(tmp_path):
    folder = save_tiny_encoder(tmp_path, "bert", "text-classification")
    plain = NeuronModelForSequenceClassification.from_pretrained(folder, export=True, **SHAPES)
    share = {"value": 1.0, "reason": "every operator runs on the device", "host_ops": []}
    assert plain.describe()["placed_share"] == share


def test_host_operators_are_part_of_cache_key(model):
    source, config = model.prepared.source, model.neuron_config
    without = type(config).from_dict({**config.to_dict(), "allow_host_ops": []})
    assert request_fields(source, config) != request_fields(source, without)


@pytest.mark.parametrize(
    ("names", "details"),
    [
        (["aten.sorrt"], {"unknown": ["aten.sorrt"]}),
        (["aten.sort", "aten.topk"], {"unknown": ["aten.topk"], "choices": ["aten.sort"]}),
        (["aten.sort", "aten.linalg_norm"], {"unknown": ["aten.linalg_norm"]}),
        (["aten.sort", "aten.layer_norm_"], {"unknown": ["aten.layer_norm_"]}),
        ("aten.sort", {"value": "aten.sort"}),
        ([3], {"value": ["3"], "unknown": ["3"]}),
    ],
)
def test_unmatched_names_are_refused(original, names, details):
    with raises(ConfigError, option="allow_host_ops", **details):
        export(original, allow_host_ops=names)


def test_names_are_kept_in_one_spelling():
    config = NeuronConfig(allow_host_ops=["aten::sort", "aten.argsort", "aten.sort.stable"])
    assert config.allow_host_ops == ("aten.argsort", "aten.sort")
    assert NeuronConfig.from_dict(config.to_dict()) == config


CODE = """
import torch
from transformers import BertForSequenceClassification


class SortedBert(BertForSequenceClassification):
    def forward(self, input_ids=None, attention_mask=None, **kwargs):
        output = super().forward(input_ids=input_ids, attention_mask=attention_mask, **kwargs)
        output.logits = torch.sort(output.logits, dim=-1).values * 2
        return output
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", str(tmp_path / "modules"))
    classes = {"AutoModelForSequenceClassification": "sorted_bert.SortedBert"}
    folder = save_tiny_encoder(tmp_path / "sorted", "bert", "text-classification", auto_map=classes)
    (folder / "sorted_bert.py").write_text(CODE)
    return folder


def test_from_shell(cli, folder, tmp_path):
    words = ["export", "neuron", "-m", str(folder), "--trust-remote-code", "--batch_size", "1"]
    words += ["--sequence_length", "8", "-O1", str(tmp_path / "out")]
    process = cli(*words)
    assert process.code == 1 and "allow_host_ops={'aten::sort'}" in process.stderr
    result = cli(*words, "--allow_host_ops", "aten.sort", "--json")
    assert result.code == 0, result.stderr
    share, shapes = result.json["placed_share"], {"batch_size": 1, "sequence_length": 8}
    assert share["host_ops"] == ["aten.sort"]
    checked = check_model(folder, trust_remote_code=True, allow_host_ops=["aten.sort"], **shapes)
    assert share["value"] == pytest.approx(checked.placed_share)
    output = cli("neuron", "inspect", str(tmp_path / "out"))
    assert "placed_share" in output.stdout and "aten.sort" in output.stdout
