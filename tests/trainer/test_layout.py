"""`TrainingNeuronConfig`: arguments of Optimum Neuron that change nothing are reported, others are errors."""

from __future__ import annotations

import dataclasses
import logging

import pytest

from optimum_neuron.trainer.layout import _INIT_ONLY, TrainingNeuronConfig


@pytest.mark.parametrize("name", _INIT_ONLY)
def test_an_argument_without_effect_is_reported(name, caplog):
    caplog.set_level(logging.INFO, "optimum_neuron.trainer.layout")
    assert TrainingNeuronConfig(**{name: False}) == TrainingNeuronConfig()
    assert [record.args[0] for record in caplog.records] == [name]


def test_init_only_arguments_are_in_the_order_of_the_class():
    stored = {field.name for field in dataclasses.fields(TrainingNeuronConfig)}
    assert tuple(name for name in TrainingNeuronConfig.__dataclass_fields__ if name not in stored) == _INIT_ONLY


def test_interleaved_stages_are_an_error():
    (problem,) = TrainingNeuronConfig(virtual_pipeline_parallel_size=2).problems()
    assert "virtual_pipeline_parallel_size=2" in problem
    assert TrainingNeuronConfig(virtual_pipeline_parallel_size=1).problems() == []
