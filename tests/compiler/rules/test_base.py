"""The registry is complete, consistent, and limited to existing operators and published codes."""

import importlib
from pathlib import Path
from unittest import mock

import pytest
import torch

from optimum_neuron.base.core import Verdict
from optimum_neuron.compiler.rules import base, find_rule, known_ops
from optimum_neuron.compiler.rules.base import instruction_source, rule, table
from optimum_neuron.compiler.rules.codes import CODES


def exists(op):
    namespace, _, name = op.partition(".")
    packet = getattr(torch.ops, namespace)
    return any(hasattr(packet, form) for form in (name, f"{name}_"))


def test_every_rule_names_torch_operators():
    names = {op for op in known_ops() if op.startswith(("aten.", "higher_order."))}
    assert len(names) > 300
    assert [op for op in sorted(names) if not exists(op)] == []


TORCH_NEURONX_ATEN = [
    "_s_where", "_softmax", "_softmax_backward_data", "_unsafe_view", "add", "addcdiv_", "addcmul", "addmm",
    "bernoulli_", "bmm", "constant_pad_nd", "div", "embedding", "embedding_dense_backward", "empty", "expand",
    "fill_", "index_select", "_log_softmax", "_log_softmax_backward_data", "lt", "mm", "mul", "native_batch_norm",
    "native_batch_norm_backward", "neg", "permute", "relu", "rsub", "select", "slice", "sqrt", "sum", "t", "tanh",
    "tanh_backward", "threshold_backward", "transpose", "unsqueeze", "view", "zero_",
]  # fmt: skip
"""ATen operators that torch-neuronx lists as supported (_s_where is today's where). The list is a sample: every name
on it must be accepted, and a name that is missing from it says nothing."""


def test_every_operator_on_published_list_has_rule():
    existing = {name for name in TORCH_NEURONX_ATEN if exists(f"aten.{name}")}
    assert len(existing) >= 40
    assert [name for name in sorted(existing) if find_rule(f"aten.{name}.default") is None] == []


def test_every_module_of_the_package_is_imported_for_its_rules(monkeypatch):
    imported, import_module = [], importlib.import_module
    monkeypatch.setattr(importlib, "import_module", lambda name: imported.append(name) or import_module(name))
    assert base._rules.__wrapped__() is base._RULES
    package, *modules = imported
    names = {path.stem for path in Path(base.__file__).parent.glob("*.py")} - {"__init__"}
    assert package == base.__name__.removesuffix(".base") and sorted(modules) == sorted(f"{package}.{n}" for n in names)


def test_one_rule_covers_overloads_and_in_place_forms():
    assert find_rule("aten.add.Tensor") is find_rule("aten.add_.Scalar") is find_rule("aten.add")
    assert find_rule("aten.no_such_operator.default") is None


def test_registering_twice_is_error():
    assert {"aten.sort", "aten.add"} <= known_ops()
    with pytest.raises(ValueError, match="registered twice.*aten.sort"):
        rule("another sort", "aten.sort")(lambda call, target: None)
    with pytest.raises(ValueError, match="registered twice.*aten.new"):
        table("new", {"Add": "new", "Sub": "new"})
    with pytest.raises(ValueError, match="registered twice.*same name"):
        table("sorting", {"Add": "not_an_operator"})


def test_names_with_overloads_are_error():
    with pytest.raises(ValueError, match="aten.add.Tensor without overload"):
        rule("new", "aten.add.Tensor")(lambda call, target: None)


def test_unpublished_instruction_is_error():
    with pytest.raises(KeyError, match="FlyingCarpet"):
        table("new", {"Add FlyingCarpet": "not_an_operator"})
    assert find_rule("aten.not_an_operator") is None


LIST, CUSTOM = "Neuron docs, neuronx-cc XLA operator list", "error code NCC_EHCA005, recognized custom calls"


@pytest.mark.parametrize(
    ("instructions", "verdict", "reason", "document"),
    [
        ("", Verdict.NATIVE, "does no work", "torch.export training IR"),
        ("Add", Verdict.NATIVE, "maps to Add", LIST),
        ("Add Mul", Verdict.DECOMPOSED, "made of Add, Mul", LIST),
        ("AwsNeuronTopK Mul", Verdict.DECOMPOSED, "made of AwsNeuronTopK, Mul", CUSTOM),
    ],
)
def test_accepted_calls_name_their_instructions_and_a_document(instructions, verdict, reason, document):
    call = mock.Mock(op="aten.made.default", module_path="layers.0", source_line="model.py:7")
    ruling = base.accept(call, instructions)
    assert (ruling.verdict, ruling.reason, ruling.code) == (verdict, reason, None) and document in ruling.source
    assert (ruling.op, ruling.module_path, ruling.source_line) == (call.op, call.module_path, call.source_line)
    warned = base.accept(call, instructions, warning="but slow", code="NCC_EVRF035")
    assert (warned.verdict, warned.reason, warned.code) == (verdict, f"{reason}; but slow", "NCC_EVRF035")


def test_refused_calls_have_the_remedy_of_the_rule_or_of_the_code():
    call = mock.Mock(op="aten.made.default", module_path="layers.0", source_line="model.py:7")
    ruling = base.refuse(call, "NCC_EVRF013", "it is made")
    assert (ruling.verdict, ruling.reason, ruling.code) == (Verdict.UNSUPPORTED, "it is made", "NCC_EVRF013")
    assert ruling.remedy == CODES["NCC_EVRF013"].remedy and "NCC_EVRF013" in ruling.source
    assert base.refuse(call, "NCC_EVRF013", "it is made", remedy="do less").remedy == "do less"


@pytest.mark.parametrize(
    ("name", "document"), [("Add", "operator list"), ("AwsNeuronTopK", "NCC_EHCA005"), ("Convolution", "NCC_EVRF010")]
)
def test_every_instruction_has_its_document(name, document):
    assert document in instruction_source(name)


def test_lists_do_not_overlap_and_codes_exist():
    assert not base.XLA_OPERATOR_LIST & base.CUSTOM_CALLS
    assert not base.RESTRICTED.keys() & (base.XLA_OPERATOR_LIST | base.CUSTOM_CALLS)
    assert set(base.RESTRICTED.values()) <= CODES.keys()


def test_sort_and_fft_are_not_instructions():
    for name in ("Sort", "Fft", "Cholesky", "TriangularSolve", "While"):
        with pytest.raises(KeyError):
            instruction_source(name)


def test_registered_operators_have_a_rule(check):
    find_rule("aten.add")  # all rules are registered
    with mock.patch.dict(base._RULES):
        for name in ("aten.histc", "aten.frexp"):
            base._RULES.pop(name, None)
        base.reject("made", "histc", code="NCC_EUOC002", reason="nothing")
        made = find_rule("aten.histc.default")
        assert made.name == "made" and made.touches_data and not made.judges_dtypes
        (refused,) = check(torch.histc, torch.rand(4)).refused
        assert (refused.rule, refused.code) == ("made", "NCC_EUOC002")
        table("made table", {min(base.XLA_OPERATOR_LIST): "frexp"})
        assert find_rule("aten.frexp.Tensor").touches_data
