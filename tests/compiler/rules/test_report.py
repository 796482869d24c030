"""The report: every problem at once, with its place in the user's model."""

import dataclasses
import inspect
import json
from pathlib import Path

import pytest
import torch
from torch import nn

from optimum_neuron.base.core import Ruling, Verdict
from optimum_neuron.compiler.rules import Report, check_graph, count_rulings, host_ops
from optimum_neuron.compiler.rules.report import can_be_hosted
from optimum_neuron.errors import ConfigError, UnsupportedOperatorError
from optimum_neuron.hardware import TARGETS
from optimum_neuron.upstream import torch as upstream
from tests.raising import raises


class Router(nn.Module):
    def forward(self, x):
        return torch.sort(x).values


class Counter(nn.Module):
    def forward(self, x):
        whole = x.to(torch.int64)
        return x + (whole @ whole)


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.router = Router()
        self.counter = Counter()

    def forward(self, x):
        return self.counter(self.router(x))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(Layer() for _ in range(3))
        self.head = nn.Linear(4, 4)

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


INF2 = TARGETS["inf2"]


@pytest.fixture
def exported_program(export):
    return export(Model(), torch.randn(4, 4))


def line_of(module):
    return inspect.getsourcelines(module.forward)[1]


def test_one_error_lists_every_unsupported_operator(exported_program, monkeypatch):
    monkeypatch.chdir(Path(__file__).parent)
    with pytest.raises(UnsupportedOperatorError) as excinfo:
        check_graph(exported_program, INF2).raise_for_refusals()
    text = str(excinfo.value)
    assert "6 calls" in text
    assert "NCC_EVRF001 aten.sort.default, 3 calls" in text
    assert f"layers.0-2.router (test_report.py:{line_of(Router) + 1})" in text
    assert "NCC_EVRF035 aten.matmul.default, 3 calls" in text
    assert f"layers.0-2.counter (test_report.py:{line_of(Counter) + 2})" in text
    assert "do: use torch.topk" in text
    assert "allow_host_ops={'aten::matmul', 'aten::sort'}" in text
    assert excinfo.value.details["num_refused"] == 6
    json.dumps(excinfo.value.details)


def test_error_names_the_option_of_the_program_that_reports_it(exported_program):
    with pytest.raises(UnsupportedOperatorError) as excinfo:
        check_graph(exported_program, INF2).raise_for_refusals("with --host")
    text = str(excinfo.value)
    assert "with --host" in text and "allow_host_ops" not in text and "={" not in text


def test_counts_merge_equal_calls_and_list_errors_first(exported_program):
    counts = check_graph(exported_program, INF2).counts()
    assert [(c.op, c.count) for c in counts[:2]] == [("aten.sort.default", 3), ("aten.matmul.default", 3)]
    assert counts[0].module_paths == ("layers.0-2.router",)
    assert {c.verdict for c in counts[2:]} == {Verdict.NATIVE}
    assert sum(c.count for c in counts) == len(check_graph(exported_program, INF2).rulings)


def test_table_names_operators_places_and_share(exported_program):
    report = check_graph(exported_program, INF2)
    table = report.table()
    assert "aten.sort.default" in table and "where: layers.0-2.router" in table
    assert table.endswith(f"{report.placed_share:.1%} of {len(report.rulings)} calls run on inf2; 6 are refused.")
    assert "aten.linear.default" in table
    assert table.count("where: ") == 2  # those that are refused
    remedies = {line.strip() for line in table.splitlines() if line.strip().startswith("do: ")}
    assert remedies == {f"do: {ruling.remedy}" for ruling in report.refused} and len(remedies) == 2


def test_plain_data_is_json(exported_program):
    data = json.loads(json.dumps(check_graph(exported_program, INF2).to_dict()))
    assert data["target"] == "inf2" and data["operators"][0]["verdict"] == "unsupported"
    assert data["operators"][0]["code"] == "NCC_EVRF001"


def test_clean_graph_raises_nothing(check):
    report = check(lambda x: x + 1, torch.randn(4))
    report.raise_for_refusals()
    assert report.placed_share == 1.0 == check(lambda x: x, torch.randn(4)).placed_share


def test_graph_module_is_accepted_like_program(exported_program):
    graph_module = exported_program.graph_module
    graph_module.add_module("plain", nn.Linear(1, 1))  # has no graph
    assert check_graph(graph_module, INF2) == check_graph(exported_program, INF2)


class TestHostOperators:
    @pytest.mark.parametrize("name", ["aten::sort", "aten.sort", "aten.sort.default"])
    def test_named_operator_runs_on_host(self, exported_program, name):
        report = check_graph(exported_program, INF2, allow_host_ops={name})
        (hosted,) = [c for c in report.counts() if c.verdict is Verdict.HOST]
        assert (hosted.op, hosted.count, hosted.code) == ("aten.sort.default", 3, "NCC_EVRF001")
        assert "allow_host_ops" in hosted.reason and {r.op for r in report.refused} == {"aten.matmul.default"}
        assert report.placed_share < 1.0 and [r.op for r in report.hosted] == ["aten.sort.default"] * 3
        assert len({*report.hosted} & {*report.refused}) == 0 < len(report.refused)

    def test_allowing_all_operators_leaves_no_error(self, exported_program):
        check_graph(exported_program, INF2, allow_host_ops=["aten::sort", "aten::matmul"]).raise_for_refusals()

    def test_supported_operator_stays_on_device(self, check):
        report = check(lambda x: x + 1, torch.randn(4), allow_host_ops={"aten::add"})
        assert [r.verdict for r in report.rulings] == [Verdict.NATIVE]

    def test_torch_operators_are_listed_only_where_one_is_named(self, monkeypatch):
        """The list takes milliseconds, and a model has many graphs."""
        monkeypatch.setattr(f"{upstream.__name__}.dispatch_get_all_op_names", lambda: pytest.fail("listed"))
        assert host_ops(()) == frozenset()

    def test_unknown_names_are_refused_together_with_nearest(self, exported_program):
        with pytest.raises(ConfigError) as excinfo:
            check_graph(exported_program, INF2, allow_host_ops={"aten::sorrt", "aten::nonzerro", "aten::sort"})
        text = str(excinfo.value)
        assert "'aten::sorrt', did you mean 'aten.sort'?" in text
        assert "'aten::nonzerro', did you mean 'aten.nonzero'?" in text


class TestImplicitDowncast:
    @pytest.mark.parametrize("kinds", [["dot"], ["all"], ["dot", "pow"]])
    def test_allowed_kind_is_warning(self, exported_program, kinds):
        report = check_graph(exported_program, INF2, implicit_integer_downcast=kinds)
        assert {r.op for r in report.refused} == {"aten.sort.default"}
        assert {r.op for r in report.rulings if r.code and r.verdict is Verdict.NATIVE} == {"aten.matmul.default"}

    @pytest.mark.parametrize("kinds", [[], ["none"], ["pow"]])
    def test_other_kind_changes_nothing(self, exported_program, kinds):
        assert check_graph(exported_program, INF2, implicit_integer_downcast=kinds) == check_graph(
            exported_program, INF2
        )

    def test_unknown_kind_is_refused(self, exported_program):
        with raises(ConfigError, option="implicit_integer_downcast", unknown=["dott"]):
            check_graph(exported_program, INF2, implicit_integer_downcast=["dott"])


@pytest.mark.parametrize(
    ("op", "rule", "expected"),
    [
        ("aten.sort.default", "sort", True),
        ("aten.sort.default", "unknown-size", False),
        ("higher_order.cond", "control", False),
        ("graph input x", "dtype", False),
    ],
)
def test_what_allow_host_ops_can_send_to_the_host(op, rule, expected):
    """No operator of an unknown size, no subgraph, and no input can be on the host."""
    ruling = Ruling(verdict=Verdict.UNSUPPORTED, op=op, rule=rule, reason="r", source="s", code="NCC_EVRF001")
    assert can_be_hosted(count_rulings([ruling])[0]) == expected


def test_graph_of_modules_is_refused():
    traced_model = torch.fx.symbolic_trace(nn.Sequential(nn.Linear(4, 4)))
    with raises(ConfigError, node="_0", op="call_module"):
        check_graph(traced_model, INF2)


def ruled(op, verdict, path, reason="because"):
    return Ruling(
        verdict=verdict, op=op, rule="rule", reason=reason, source="page", module_path=path, source_line="model.py:3"
    )


def test_errors_come_first_and_the_rest_by_frequency():
    counts = count_rulings(
        [
            ruled("aten.mul", Verdict.NATIVE, "a"),
            ruled("aten.add", Verdict.NATIVE, "a"),
            ruled("aten.add", Verdict.NATIVE, "b"),
            ruled("aten.sort", Verdict.UNSUPPORTED, "a"),
            ruled("aten.fft", Verdict.UNSUPPORTED, "a"),
            ruled("aten.fft", Verdict.UNSUPPORTED, "b"),
            ruled("aten.topk", Verdict.HOST, "a"),
        ]
    )
    assert [(c.op, c.count) for c in counts] == [
        ("aten.sort", 1),
        ("aten.fft", 2),
        ("aten.topk", 1),
        ("aten.add", 2),
        ("aten.mul", 1),
    ]


def test_calls_with_different_reasons_are_separate_rows():
    counts = count_rulings(
        [ruled("aten.mm", Verdict.UNSUPPORTED, "a", "int32"), ruled("aten.mm", Verdict.UNSUPPORTED, "b", "int64")]
    )
    assert [c.reason for c in counts] == ["int32", "int64"]


def test_each_location_is_listed_once():
    (count,) = count_rulings([ruled("aten.mm", Verdict.NATIVE, f"layers.{i}.mlp") for i in range(4)])
    assert count.where() == "layers.0-3.mlp (model.py:3)"
    (top,) = count_rulings([ruled("aten.mm", Verdict.NATIVE, "")])
    assert top.where() == "top level (model.py:3)"
    assert dataclasses.replace(top, source_lines=()).where() == "top level"
    (unknown,) = count_rulings([ruled("aten.mm", Verdict.NATIVE, None)])
    assert unknown.where() == "unknown module (model.py:3)"
    (nowhere,) = count_rulings([dataclasses.replace(ruled("aten.mm", Verdict.NATIVE, None), source_line=None)])
    assert nowhere.where() == "unknown module"


def test_texts_of_a_report():
    remedy = "cast it, or run it on the host with allow_host_ops"
    refused = dataclasses.replace(
        ruled("aten.mm", Verdict.UNSUPPORTED, "layers.0", "int64"), code="NCC_EVRF035", remedy=remedy
    )
    bare = ruled("aten.sort", Verdict.UNSUPPORTED, "layers.1", "sorts")
    hosted = dataclasses.replace(ruled("aten.topk", Verdict.HOST, "", "hosted"), code="NCC_EVRF013")
    report = Report(target="inf2", rulings=(refused, bare, bare, hosted, ruled("aten.add", Verdict.NATIVE, "", "is")))
    assert report.table().splitlines() == [
        "operator   calls  verdict      reason",
        "aten.mm        1  unsupported  NCC_EVRF035: int64",
        "                  where: layers.0 (model.py:3)",
        f"                  do: {remedy}",
        "aten.sort      2  unsupported  sorts",
        "aten.topk      1  host         NCC_EVRF013: hosted",
        "                  where: top level (model.py:3)",
        "aten.add       1  native       is",
        "20.0% of 5 calls run on inf2; 3 are refused.",
    ]
    assert Report(target="inf2", rulings=()).table().splitlines() == [
        "operator  calls  verdict      reason",
        "100.0% of 0 calls run on inf2; 0 are refused.",
    ]
    data = report.to_dict()
    operators = data.pop("operators")
    assert data == {"target": "inf2", "num_calls": 5, "num_refused": 3, "placed_share": 0.2}
    assert [(one["op"], one["count"], one["verdict"], one["code"], one["remedy"]) for one in operators] == [
        ("aten.mm", 1, "unsupported", "NCC_EVRF035", remedy),
        ("aten.sort", 2, "unsupported", None, None),
        ("aten.topk", 1, "host", "NCC_EVRF013", None),
        ("aten.add", 1, "native", None, None),
    ]
    with pytest.raises(UnsupportedOperatorError) as error:
        report.raise_for_refusals("with --host")
    assert error.value.message.splitlines() == [
        "inf2 cannot run 3 calls of this graph:",
        "  NCC_EVRF035 aten.mm, 1 call",
        "    where: layers.0 (model.py:3)",
        "    why: int64",
        "    do: cast it, or run it with --host",
        "  aten.sort, 2 calls",
        "    where: layers.1 (model.py:3)",
        "    why: sorts",
    ]
    assert error.value.hint == "Change these calls, or run them with --host."
    assert error.value.details == report.to_dict()


def test_only_what_can_be_hosted_is_offered_to_the_host(check):
    report = check(lambda x: torch.cond(x.sum() > 0, lambda y: y + 1, lambda y: y - 1, (x,)), torch.rand(2))
    assert [one.op for one in report.refused] == ["higher_order.cond"]
    with pytest.raises(UnsupportedOperatorError) as error:
        report.raise_for_refusals()
    assert "allow_host_ops" not in str(error.value)
