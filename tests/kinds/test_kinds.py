"""A kind is one folder: a toy kind is exported, cached, run, checked, estimated, and on the command line."""

from __future__ import annotations

import argparse
import dataclasses
import functools
import re
from pathlib import Path

import pytest
import torch
from transformers import BertModel

from optimum_neuron import check_model
from optimum_neuron.cli import add_compile_arguments, add_graph_arguments, add_size_arguments, options_from
from optimum_neuron.errors import ConfigError, ModelError
from optimum_neuron.exporters import cached_entries, load_exported, main_export, read_folder
from optimum_neuron.kinds import KINDS, compile_options, kind_of
from optimum_neuron.kinds.registry import register_kind
from optimum_neuron.options.option import SOURCE_OPTIONS
from optimum_neuron.simulator import compare, estimate
from optimum_neuron.sources import load_source, tasks
from tests.encoders import save_tiny_encoder
from tests.kinds.toy import plan
from tests.kinds.toy.configuration import TASK, ToyConfig
from tests.raising import raises

_TOY = re.compile(r"kinds[./]toy|ToyKind|ToyConfig")


@pytest.fixture
def toy(tmp_path):
    """Register the toy kind for one test; return the folder of a checkpoint that it can compile."""
    kinds, named, table = dict(KINDS), dict(tasks.TASKS), list(tasks._TABLE)
    plan.register()
    yield save_tiny_encoder(tmp_path / "bert", "bert", "feature-extraction")
    for registry, before in ((KINDS, kinds), (tasks.TASKS, named)):
        registry.clear()
        registry.update(before)
    tasks._TABLE[:] = table


def test_toy_kind_is_exported_and_cached(toy, tmp_path):
    options = {"task": TASK, "num_words": 4, "cache_url": str(tmp_path / "cache")}
    first, second = (main_export(toy, tmp_path / name, **options).to_dict() for name in ("a", "b"))
    assert [graph["name"] for graph in first["graphs"]] == ["embed", "encode"]
    assert (first["cache"]["value"], second["cache"]["value"]) == ("miss", "hit")
    assert [row["output"] for row in first["validation"]] == ["words: hidden"] and first["validation"][0]["ok"]
    config = read_folder(tmp_path / "a").config
    assert isinstance(config, ToyConfig) and config == ToyConfig.from_pretrained(tmp_path / "b")
    (entry,) = cached_entries(toy, task=TASK, cache_url=options["cache_url"])
    assert entry["num_words"] == 4


def test_toy_kind_runs_in_the_engine(toy, tmp_path):
    main_export(toy, tmp_path / "out", task=TASK, num_words=4, disable_validation=True)
    ids = torch.tensor([[5, 6, 7, 8], [9, 10, 11, 12], [3, 4, 5, 6]])
    prepared = load_exported(tmp_path / "out", {}, name="toy")
    hidden = plan.Runner(prepared.loaded)(ids)["hidden"]
    prepared.loaded.close()
    with torch.no_grad():
        expected = BertModel.from_pretrained(toy)(input_ids=ids).last_hidden_state
    torch.testing.assert_close(hidden, expected, atol=1e-4, rtol=1e-4)


def test_toy_kind_is_checked_and_estimated(toy):
    report = check_model(toy, task=TASK, num_words=4)
    assert [graph.name for graph in report.graphs] == ["embed", "encode"] and report.config.num_words == 4
    paths = [path for row in report.operators for path in row.calls.module_paths]
    assert "embeddings.LayerNorm" in paths and any(path.startswith("encoder.layer.") for path in paths)
    short, long = (estimate(toy, task=TASK, num_words=number) for number in (4, 32))
    assert short.latency_ms.value < long.latency_ms.value


def test_toy_kind_has_its_options(toy):
    assert "num_words" in compile_options()
    for function in (check_model, estimate):
        with pytest.raises(ConfigError) as error:
            function(toy, task=TASK, batch_size=2)
        assert error.value.details["options"] == ["batch_size"]
    for add in (add_compile_arguments, add_graph_arguments, add_size_arguments):
        parser = argparse.ArgumentParser()
        add(parser)
        assert options_from(parser.parse_args(["--num_words", "4"])) == {"num_words": 4}
        assert "toy models:\n  --num_words N" in parser.format_help()


def test_kind_is_registered_once(monkeypatch):
    monkeypatch.setattr("optimum_neuron.kinds.registry.KINDS", dict(KINDS))
    register_kind("decoder", KINDS["decoder"])
    with pytest.raises(ValueError, match="decoder"):
        register_kind("decoder", KINDS["encoder"])


@pytest.mark.parametrize(
    ("model_type", "task"),
    [("llama", "fill-mask"), ("bert", "image-text-to-text"), ("llama", "text2text-generation")]
    + [("t5", "text-generation"), ("bert", "automatic-speech-recognition")],
)
def test_unsupported_task_is_rejected(model_type, task, tmp_path):
    from transformers import AutoConfig

    AutoConfig.for_model(model_type).save_pretrained(tmp_path)
    with pytest.raises(ModelError) as error:
        kind_of(task, model_type).require_task(load_source(tmp_path), task)
    assert (error.value.details["task"], error.value.details["model_type"]) == (task, model_type)
    assert error.value.details["tasks"] == tasks.tasks_of(model_type)


def test_entry_points_share_source_options(monkeypatch, tmp_path):
    """Arguments of the one function that finds a folder."""
    from optimum_neuron import NeuronModelForCausalLM
    from optimum_neuron.sources import source

    where = {"subfolder": "inner", "revision": "v1", "token": "secret", "cache_dir": str(tmp_path)}
    where |= {"local_files_only": True, "force_download": True, "gguf_file": "model.gguf"}
    assert {*where, "trust_remote_code"} == set(SOURCE_OPTIONS)
    calls = []

    def download(name, where, *, patterns):
        calls.append(where)
        raise ModelError("There is no such model.", model=name)

    monkeypatch.setattr(source, "_download", download)
    entry_points = (
        functools.partial(main_export, output=tmp_path / "out"),
        check_model,
        functools.partial(estimate, instance="inf2.xlarge"),
        functools.partial(compare, instance="inf2.xlarge"),
        NeuronModelForCausalLM.from_pretrained,
    )
    for function in entry_points:
        with raises(ModelError, model="acme/tiny"):
            function("acme/tiny", **where, trust_remote_code=True)
    assert [dataclasses.asdict(call) for call in calls] == [where | {"trust_remote_code": True}] * len(entry_points)


def test_no_other_file_knows_the_toy_kind():
    """Apart from tests of this module, and the check that folders of tests have their place."""
    root = Path(__file__).parents[2]
    sources = [*(root / "optimum_neuron").rglob("*.py"), *(root / "tests").rglob("*.py")]
    knowing = {path.relative_to(root) for path in sources if _TOY.search(path.read_text(encoding="utf-8"))}
    assert {path for path in knowing if path.parts[:3] != ("tests", "kinds", "toy")} == {
        Path("tests/kinds/test_kinds.py"),
        Path("tests/test_house.py"),
    }
