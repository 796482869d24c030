"""Graphs of toy models, how they are called, and what their validation compares."""

from __future__ import annotations

import dataclasses
import functools

import torch
from torch import nn

from optimum_neuron.base.core import Choice, TensorSpec
from optimum_neuron.compiler import capture
from optimum_neuron.engine import Forward, Input, OutputAxis, RoleSignature, Signature
from optimum_neuron.kinds import Kind, Plan, Scenario
from optimum_neuron.kinds.empty import empty_model
from optimum_neuron.kinds.registry import KindRow, register_kind
from optimum_neuron.runtime import Copies
from optimum_neuron.sources import tasks
from tests.kinds.toy.configuration import TASK, ToyConfig

ROWS = (OutputAxis(dim=0, axis="batch_size"),)
WORDS = Input(name="input_ids", dtype="int64", axes=("batch_size", "num_words"))
HIDDEN = Input(name="hidden", dtype="float32", axes=("batch_size", "num_words", "width"))
EXACT = {"num_words": "there is no mask", "width": "it is a property of the model"}
SIGNATURE = Signature(
    roles={
        "forward": RoleSignature(inputs=(WORDS,), outputs={"hidden": ROWS}, exact=EXACT),
        "encode": RoleSignature(inputs=(HIDDEN,), outputs={"hidden": ROWS}, exact=EXACT),
    }
)


class Embed(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, input_ids):
        return self.model.embeddings(input_ids=input_ids)


class Encode(Embed):
    def forward(self, hidden):
        return self.model.encoder(hidden).last_hidden_state


class Runner:
    """A compiled toy model: its two calls, one after the other."""

    def __init__(self, loaded):
        self._embed, self._encode = (Forward(Copies([loaded]), role, SIGNATURE[role]) for role in ("forward", "encode"))

    def __call__(self, input_ids):
        return self._encode(self._embed({"input_ids": input_ids}))


class ToyKind(Kind[ToyConfig]):
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
                functools.partial(_capture, Embed(model), "embed", "forward", {"input_ids": ids}),
                functools.partial(_capture, Encode(model), "encode", "encode", {"hidden": hidden}),
            ],
            weight_sources={name: (name.removeprefix("model."),) for name in names},
            facts={"signature": SIGNATURE.to_dict()},
        )

    def scenarios(self, recorder, reference, metadata, config):
        ids = torch.arange(3, 3 + config.num_words)[None]

        def expected():
            with torch.no_grad():
                return {"hidden": reference(input_ids=ids).last_hidden_state}

        run = functools.partial(Runner(recorder), ids)
        return [Scenario(name="words", run=run, reference=expected)]

    def problems(self, *arguments):
        return []


def _capture(entry, name, role, inputs, shorten):
    return capture(entry, name=name, role=role, inputs=inputs, outputs=("hidden",), shorten=shorten)


KIND = ToyKind()


def register():
    """Add the kind and its task, as a package of another distribution would."""
    register_kind("toy", KindRow(config_class=ToyConfig, module=__name__))
    tasks.register_task(dataclasses.replace(tasks.TASKS["feature-extraction"], name=TASK, kind="toy", suffixes=()))
