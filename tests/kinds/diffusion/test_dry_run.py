"""Calls of a pipeline's models that a dry run notes: those of the pipeline, and those of other libraries."""

from __future__ import annotations

import pytest

from optimum_neuron.kinds.diffusion import NeuronDiffusionConfig
from optimum_neuron.kinds.diffusion.dry_run import note_calls
from optimum_neuron.kinds.diffusion.parts import calls_of
from tests.tiny_pipelines.table import make_pipeline

pytest.importorskip("diffusers")

SIZES = {"height": 32, "width": 32}


@pytest.mark.parametrize("name", ["sd", "sdxl"])
def test_text_encoders_are_called_as_compel_calls_them(name):
    calls = note_calls(make_pipeline(name), NeuronDiffusionConfig(**SIZES, output_hidden_states=True))
    for part in (part for part in calls if part.startswith("text_encoder")):
        fields = [call.arguments["dict"].keys() for call in calls[part]]
        kinds = {(("attention_mask" in names), ("output_hidden_states" in names)) for names in fields}
        assert kinds == {(False, False), (False, True), (True, False), (True, True)}
        assert len(calls[part]) == 4


def test_arguments_that_change_nothing_may_be_recorded():
    # Folders of earlier versions have them.
    calls = note_calls(make_pipeline("sd"), NeuronDiffusionConfig(**SIZES))["text_encoder"]
    rows = [call.to_dict() for call in calls]
    for row in rows:
        row["arguments"] = {"dict": row["arguments"]["dict"] | {"output_hidden_states": False, "return_dict": True}}
    assert calls_of({"calls": rows}) == list(calls)
