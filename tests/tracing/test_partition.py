"""Host fallback: the examples of the vendor's documentation, and every limit."""

from __future__ import annotations

import logging

import pytest
import torch

from optimum_neuron.compiler.neff import open_neff
from optimum_neuron.errors import ConfigError, UnsupportedOperatorError
from optimum_neuron.tracing import PartitionerConfig, dynamic_batch, trace
from tests.raising import raises, refused_operators
from tests.tracing.conftest import FAST, Mlp

X = torch.rand(5, 12)


class SortedEnd(Mlp):
    def forward(self, x):
        return torch.sort(super().forward(x))[0]


class SortedMiddle(Mlp):
    def forward(self, x):
        x, _ = torch.sort(self.relu(self.fc1(x)))
        return torch.log_softmax(self.fc3(self.relu(self.fc2(x))), dim=1)


def test_nothing_runs_on_host_by_default():
    with raises(UnsupportedOperatorError) as error:
        trace(SortedEnd(), X, compiler_args=FAST)
    assert refused_operators(error) == {"aten.sort": "NCC_EVRF001"}


@pytest.mark.parametrize("model", [SortedEnd(), SortedMiddle()])
def test_unsupported_operator_runs_on_host_from_file_and_in_batches(model, tmp_path):
    traced_model, more = trace(model, X, partitioner_config=PartitionerConfig(), compiler_args=FAST), torch.rand(8, 12)
    torch.testing.assert_close(traced_model(X), model(X))
    torch.jit.save(traced_model, tmp_path / "m.pt")
    torch.testing.assert_close(torch.jit.load(tmp_path / "m.pt")(X), model(X))
    torch.testing.assert_close(dynamic_batch(traced_model)(more), model(more))


def test_parts_are_reported_and_logged(tmp_path, caplog):
    caplog.set_level(logging.INFO, logger="Neuron")
    options = {"model_support_percentage_threshold": 0.8, "ops_to_partition": {"aten::log_softmax"}}
    config = PartitionerConfig(**options, trace_kwargs={"compiler_args": FAST, "compiler_workdir": tmp_path})
    model = SortedEnd()
    torch.testing.assert_close(trace(model, X, partitioner_config=config)(X), model(X))
    with open_neff(tmp_path / "graph.neff") as neff:
        plan = neff.metadata["partition"]
    assert plan["host_ops"] == ["aten::log_softmax", "aten::sort"]
    assert [(part["device"], len(part["operators"])) for part in plan["subgraphs"]] == [("neuron", 5), ("cpu", 2)]
    assert "85.71% of operations (6 of 7) are supported" in caplog.text and "Num Partitions: 2" in caplog.text


@pytest.mark.parametrize(
    "options",
    [{"max_subgraph_count": 2}, {"min_subgraph_size": 3}, {"model_support_percentage_threshold": 0.9}],
    ids=str,
)
def test_exceeded_limit_is_refused(options):
    with raises(ConfigError, options=list(options), host_ops=["aten::sort"], supported_share=6 / 7) as error:
        trace(SortedMiddle(), X, partitioner_config=PartitionerConfig(**options), compiler_args=FAST)
    assert [len(part["operators"]) for part in error.value.details["subgraphs"]] == [2, 1, 4]


IGNORED = {"additional_ignored_ops": {"aten::sort"}}


@pytest.mark.parametrize(
    "options",
    [
        {"max_subgraph_count": 3, "min_subgraph_size": 1, "model_support_percentage_threshold": 0.85},
        {"model_support_percentage_threshold": 1, "analyze_parameters": IGNORED},
    ],
    ids=["limits hold", "ignored operators do not count"],
)
def test_limits_within_bounds_pass(options):
    trace(SortedMiddle(), X, partitioner_config=PartitionerConfig(**options), compiler_args=FAST)


def test_data_dependent_sizes_are_refused():
    config = PartitionerConfig(model_support_percentage_threshold=0)
    with raises(UnsupportedOperatorError) as error:
        trace(lambda x: torch.nonzero(x) * 2, X, partitioner_config=config, compiler_args=FAST)
    assert refused_operators(error)["aten.nonzero"] == "NCC_EMOD025"


@pytest.mark.parametrize(
    "options",
    [
        {"max_subgraph_count": 0},
        {"min_subgraph_size": -2},
        {"model_support_percentage_threshold": 1.1},
        {"ops_to_partition": "aten::sort"},
        {"ops_to_partition": {"sort"}},
        {"trace_kwargs": {"compiler_arg": "-O1"}},
        {"analyze_parameters": {"max_worker": 1}},
    ],
)
def test_contradictory_options_are_refused(options):
    with pytest.raises(ConfigError):
        PartitionerConfig(**options)
