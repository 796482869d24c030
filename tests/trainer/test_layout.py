"""`TrainingNeuronConfig`: arguments of Optimum Neuron without effect are reported, others are errors."""

from __future__ import annotations

import dataclasses
import logging

import pytest

from optimum_neuron.distributed.layout import WITHOUT_EFFECT, TrainingNeuronConfig


@pytest.mark.parametrize("name", WITHOUT_EFFECT)
def test_an_argument_without_effect_is_reported(name, caplog):
    caplog.set_level(logging.INFO, "optimum_neuron.distributed.layout")
    assert TrainingNeuronConfig(**{name: False}) == TrainingNeuronConfig()
    assert [record.args[0] for record in caplog.records] == [name]


def test_init_only_arguments_are_in_the_order_of_the_class():
    stored = {field.name for field in dataclasses.fields(TrainingNeuronConfig)}
    assert [name for name in TrainingNeuronConfig.__dataclass_fields__ if name not in stored] == list(WITHOUT_EFFECT)


def test_interleaved_stages_are_an_error():
    (problem,) = TrainingNeuronConfig(virtual_pipeline_parallel_size=2).problems()
    assert problem.details == {"option": "virtual_pipeline_parallel_size", "value": 2}
    assert TrainingNeuronConfig(virtual_pipeline_parallel_size=1).problems() == []
