"""A kind is one module and a row: a toy kind is exported, cached, checked, estimated, and on the command line."""

from __future__ import annotations

import argparse
import dataclasses
import functools
from collections.abc import Iterator

import pytest
import torch
from torch import nn

from optimum_neuron import check_model
from optimum_neuron.base.core import Choice, TensorSpec
from optimum_neuron.cli import add_compile_arguments, add_graph_arguments, add_size_arguments, options_from
from optimum_neuron.compiler import capture
from optimum_neuron.engine import Signature
from optimum_neuron.errors import ConfigError, ModelError
from optimum_neuron.exporters import cached_entries, main_export, read_folder
from optimum_neuron.kinds import KINDS, Kind, Plan, Scenario, compile_options, kind_of
from optimum_neuron.kinds.empty import empty_model
from optimum_neuron.kinds.registry import KindRow, register_kind
from optimum_neuron.options.configuration import CompileConfig
from optimum_neuron.options.option import OPEN, SOURCE_OPTIONS, option
from optimum_neuron.options.sizes import count_errors
from optimum_neuron.simulator import compare, estimate
from optimum_neuron.sources import load_source, tasks
from tests.encoders import save_tiny_encoder
from tests.raising import raises

TASK = "two-step-encoding"


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class ToyConfig(CompileConfig):
    """Shapes of a toy model."""

    group = "toy models"
    sizes_of_model = ("num_words",)

    task: str = TASK
    num_words: int = option(OPEN, help="words of a text", is_input_size=True)

    @property
    def axes(self) -> tuple[str, ...]:
        return ("num_words",)

    def _problems(self) -> Iterator[ConfigError]:
        yield from count_errors(self, ("num_words",), optional=True)
        yield from super()._problems()


class Embed(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, input_ids):
        return self.model.embeddings(input_ids=input_ids)


class Encode(Embed):
    def forward(self, hidden):
        return self.model.encoder(hidden).last_hidden_state


class ToyKind(Kind):
    """Two entry points: embeddings, and the layers on top of them."""

    name = "toy"
    config_class = ToyConfig

    def resolve(self, source, config, *, trust_remote_code):
        return config.completed(num_words=config.num_words or 8)

    def plan(self, source, config, *, trust_remote_code):
        model = empty_model(source, config, attention=None, trust_remote_code=trust_remote_code)
        ids = TensorSpec(shape=(1, config.num_words), dtype="int64")
        hidden = TensorSpec(shape=(*ids.shape, source.config.hidden_size), dtype=config.torch_dtype)
        names = [f"model.{name}" for tensors in (model.named_parameters, model.named_buffers) for name, _ in tensors()]
        return Plan(
            choice=Choice(value="toy", reason="a test"),
            captures=[
                functools.partial(_capture, Embed(model), "embed", {"input_ids": ids}),
                functools.partial(_capture, Encode(model), "encode", {"hidden": hidden}),
            ],
            weight_sources={name: (name.removeprefix("model."),) for name in names},
            facts={},
        )

    def signature(self, *arguments):
        return Signature(roles={})

    def scenarios(self, recorder, reference, metadata, config):
        ids = torch.arange(3, 3 + config.num_words)[None]

        def run():
            return recorder.run("encode", list(recorder.run("embed", [ids]).values()))

        def expected():
            with torch.no_grad():
                return {"hidden": reference(input_ids=ids).last_hidden_state}

        return [Scenario(name="words", run=run, reference=expected)]

    def problems(self, *arguments):
        return []


def _capture(entry, name, inputs, shorten):
    return capture(entry, name=name, inputs=inputs, outputs=("hidden",), shorten=shorten)


KIND = ToyKind()


@pytest.fixture
def toy(monkeypatch, tmp_path):
    """Register the toy kind with its task; return the folder of a checkpoint that it can compile."""
    monkeypatch.setattr(tasks, "_TABLE", list(tasks._TABLE))
    row = KindRow(config_class=ToyConfig, module=__name__)
    monkeypatch.setitem(KINDS, "toy", row)
    task = dataclasses.replace(tasks.TASKS["feature-extraction"], name=TASK, kind="toy", suffixes=())
    monkeypatch.setitem(tasks.TASKS, TASK, task)
    tasks.register_task(task)
    return save_tiny_encoder(tmp_path / "bert", "bert", "feature-extraction")


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
