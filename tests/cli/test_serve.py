"""`optimum-cli neuron serve`, up to the server; `tests/serving/` tests what it answers."""

from __future__ import annotations

import importlib.util

import pytest


def test_a_missing_package_is_named(cli, monkeypatch):
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *a: None if name == "fastapi" else found(name, *a))
    result = cli("neuron", "serve", "smollm2", "--json")
    assert result.code == 1
    assert result.json["error"]["details"]["packages"] == ["fastapi"]


@pytest.fixture
def served(monkeypatch):
    """Deployments in the order in which they were to be served."""
    deployments = []
    monkeypatch.setattr("optimum_neuron.serving.serve", lambda deployment, on_listening: deployments.append(deployment))
    return deployments


def test_names_of_optimum_neuron_and_vllm(cli, served):
    sizes = ("--batch_size", "2", "--sequence_length", "64", "--tensor_parallel_size", "2", "--port", "8080")
    assert cli("neuron", "serve", "-m", "org/model", *sizes, "--allow_non_cached_model").code == 0
    sizes = ("--max-num-seqs", "2", "--max-model-len", "64", "--tensor-parallel-size", "2", "--port", "8080")
    assert cli("neuron", "serve", "org/model", *sizes, "--data-parallel-size", "1").code == 0
    (first,), (second,) = (deployment.registry.models for deployment in served)
    assert first.spec == second.spec and first.spec.source == "org/model"
    assert first.spec.options == {"batch_size": 2, "sequence_length": 64, "tensor_parallel_size": 2}
    assert [deployment.options.port for deployment in served] == [8080, 8080]


def test_port_is_that_of_the_form_of_the_command(cli, served):
    for words in (("org/model",), ("--model=org/model",), ("-m", "org/model", "--port", "1")):
        assert cli("neuron", "serve", *words).code == 0
    assert [deployment.options.port for deployment in served] == [8000, 8080, 1]


def test_variables_of_optimum_neurons_container_are_arguments(cli, served, monkeypatch):
    variables = {"MODEL": "org/model", "BATCH_SIZE": "2", "SEQUENCE_LENGTH": "64", "ALLOW_NON_CACHED_MODEL": ""}
    for name, value in variables.items():
        monkeypatch.setenv(f"SM_ON_{name}", value)
    assert cli("neuron", "serve").code == 0
    assert cli("neuron", "serve", "org/other", "--batch_size", "4").code == 0
    first, second = (deployment.registry.models[0].spec for deployment in served)
    assert (first.source, first.options) == ("org/model", {"batch_size": 2, "sequence_length": 64})
    assert (second.source, second.options) == ("org/other", {"batch_size": 4, "sequence_length": 64})
    assert [deployment.options.port for deployment in served] == [8080, 8000]
    monkeypatch.setenv("SM_ON_BATCH_SIZ", "2")
    assert cli("neuron", "serve").code == 2


@pytest.mark.parametrize(("task", "ours"), [("embed", "feature-extraction"), ("generate", "text-generation")])
def test_tasks_of_vllm(cli, served, task, ours):
    assert cli("neuron", "serve", "--model", "org/model", "--task", task).code == 0
    assert served[0].registry.models[0].spec.options == {"task": ours}


@pytest.mark.parametrize("words", [(), ("-m", "a", "b")], ids=["no model", "two models"])
def test_one_way_to_name_the_model(cli, served, words):
    assert cli("neuron", "serve", *words).code == 2 and not served


@pytest.mark.parametrize("words", [("--data-parallel-size", "2"), ("--num_replicas", "2")], ids=["theirs", "ours"])
def test_replicas(cli, served, words):
    assert cli("neuron", "serve", "a", *words, "--instance_type", "inf2.xlarge").code == 0
    assert [model.num_replicas for model in served[0].registry.models] == [2]


def test_replicas_that_lack_cores_are_refused(cli, served):
    options = ("--tensor_parallel_size", "2", "--instance_type", "inf2.xlarge")
    result = cli("neuron", "serve", "-m", "a", "--data-parallel-size", "2", *options, "--json")
    assert result.code == 1 and not served
    assert result.json["error"]["details"] == {"option": "num_replicas", "value": 2, "needed": 4, "usable": 2}


def test_replicas_have_one_number(cli, served):
    assert cli("neuron", "serve", "a", "--data-parallel-size", "2", "--num_replicas", "3").code == 2 and not served


def test_models_can_be_served_without_validation(cli, served):
    assert cli("neuron", "serve", "somewhere/model", "--batch_size", "2", "--disable_validation").code == 0
    assert served[0].registry.models[0].spec.options == {"batch_size": 2, "disable_validation": True}
