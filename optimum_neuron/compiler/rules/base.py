"""Defines a rule, and the registry that finds the rule of an operator.

A rule is a module of this package. It names the operators it covers and judges one call at a time:

    @rule("topk", "aten.topk")
    def judge(call: OpCall, target: Target) -> Ruling:
        if call.inputs[0].dtype in ("int32", "int64"):
            return refuse(call, "NCC_EVRF013", "the input holds integers")
        return accept(call, "AwsNeuronTopK")

`table` and `reject` register rules that accept or refuse every call. Operators are named without overload and in-place
underscore: "add" covers "aten.add.Tensor" and "aten.add_.Scalar"; a text may name several, separated by spaces. All
modules of the package are imported on the first lookup, so a new rule needs no other edit.

A rule may only map an operator to instructions, custom calls, and ATen operators that the vendor publishes, so that
every acceptance rests on a published list. "Neuron docs" is the AWS Neuron documentation as of SDK 2.32 (August 2026).
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import pkgutil
from collections.abc import Callable, Mapping

from ...base.core import Ruling, Verdict
from ...hardware import Target
from .call import OpCall, base_name
from .codes import CODES

__all__ = ["OpCall", "Rule", "Target", "accept", "find_rule", "known_ops", "refuse", "reject", "rule", "table"]


Judge = Callable[[OpCall, Target], Ruling]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Rule:
    """A judgement on the calls of some operators."""

    name: str
    """Unique; appears in rulings."""
    judge: Judge
    touches_data: bool = True
    """False for bookkeeping, which may meet any dtype and shape."""
    judges_dtypes: bool = False
    """Whether the function judges every dtype, which are then not compared with those of the core."""


_RULES: dict[str, Rule] = {}


def rule(name: str, *ops: str, touches_data: bool = True, judges_dtypes: bool = False) -> Callable[[Judge], Judge]:
    """Register a judge function as the rule of `ops`; its rulings get the rule's name."""
    names = [op for text in ops for op in _operators(text)]

    def register(judge: Judge) -> Judge:
        repeated = sorted(op for op in names if op in _RULES or names.count(op) > 1)
        if repeated or any(known.name == name for known in _RULES.values()):
            raise ValueError(f"rule '{name}': registered twice ({', '.join(repeated) or 'same name'})")
        overloads = sorted(op for op in names if base_name(op) != op)
        if overloads:
            raise ValueError(f"rule '{name}': name {', '.join(overloads)} without overload and in-place underscore")

        def named(call: OpCall, target: Target) -> Ruling:
            return dataclasses.replace(judge(call, target), rule=name)

        entry = Rule(name=name, judge=named, touches_data=touches_data, judges_dtypes=judges_dtypes)
        _RULES.update(dict.fromkeys(names, entry))
        return judge

    return register


def table(name: str, operators: Mapping[str, str], *, touches_data: bool = True) -> None:
    """Register a rule that accepts every call of its operators.

    Args:
        operators: published instructions, separated by spaces, to the operators that they make up.
        touches_data: False for bookkeeping.
    """
    for text in operators:
        for instruction in text.split():
            instruction_source(instruction)
    instructions = {op: text for text, ops in operators.items() for op in _operators(ops)}
    register = rule(name, *operators.values(), touches_data=touches_data)
    register(lambda call, target: accept(call, instructions[call.name]))


def reject(name: str, *ops: str, code: str, reason: str, remedy: str | None = None) -> None:
    """Register a rule that refuses every call of `ops`; see `refuse`."""
    rule(name, *ops)(lambda call, target: refuse(call, code, reason, remedy=remedy))


def _operators(text: str) -> list[str]:
    """Split names of operators; one without a namespace is of ATen."""
    return [op if "." in op else f"aten.{op}" for op in text.split()]


def find_rule(op: str) -> Rule | None:
    """Return the rule of an operator, given with or without overload, or None."""
    return _rules().get(base_name(op))


def known_ops() -> frozenset[str]:
    """Return every operator that has a rule, without overloads."""
    return frozenset(_rules())


def accept(call: OpCall, instructions: str, *, warning: str | None = None, code: str | None = None) -> Ruling:
    """Accept a call as published instructions: at most one is native, several are a decomposition.

    Args:
        instructions: names that the vendor publishes, separated by spaces; "" for a call that does no work.
        warning: Warning for the user although the call is accepted.
    """
    names = instructions.split()
    reason = f"made of {', '.join(names)}" if len(names) > 1 else f"maps to {names[0]}" if names else "does no work"
    return Ruling(
        verdict=Verdict.DECOMPOSED if len(names) > 1 else Verdict.NATIVE,
        op=call.op,
        rule="",
        reason=f"{reason}; {warning}" if warning else reason,
        source=instruction_source(names[0]) if names else "torch.export training IR",
        code=code,
        module_path=call.module_path,
        source_line=call.source_line,
    )


def refuse(call: OpCall, code: str, reason: str, *, remedy: str | None = None, rule: str = "") -> Ruling:
    """Refuse a call with a published code; the remedy defaults to the one of the code, the rule to the caller's."""
    return Ruling(
        verdict=Verdict.UNSUPPORTED,
        op=call.op,
        rule=rule,
        reason=reason,
        source=f"Neuron docs, neuronx-cc error code {code}",
        code=code,
        remedy=remedy or CODES[code].remedy,
        module_path=call.module_path,
        source_line=call.source_line,
    )


@functools.cache
def _rules() -> Mapping[str, Rule]:
    """The registry, once every module of the package is imported."""
    package = importlib.import_module(__name__.rpartition(".")[0])
    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"{package.__name__}.{module.name}")
    return _RULES


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


XLA_OPERATOR_LIST = _names(
    """
    Abs Add Allgather Allreduce Atan2 Batchnorm Batchnormgrad Batchnorminference Broadcast BroadcastInDim Ceil Clamp
    Compare Concatenate Constant ConvertElementType Cos Div Dot DotGeneral DynamicUpdateSlice Exp Floor Gather
    GetTupleElement Iota Log LogicalAnd LogicalNot Max Min Mul Neg Pad Pow Reduce Reshape RngBitGenerator RngUniform
    Rsqrt Scatter Select ShiftRightLogical Sign Sin Slice Sqrt Sub Tanh Transpose Tuple
    """
)
"""Instructions of the published list (compiler documentation, operators of framework XLA); comparisons are folded
into Compare."""

CUSTOM_CALLS = _names(
    """
    AwsNeuronErf AwsNeuronGelu AwsNeuronGeluApprxTanh AwsNeuronGeluBackward AwsNeuronSilu AwsNeuronSiluBackward
    AwsNeuronRmsNorm AwsNeuronSoftmax AwsNeuronSoftmaxBackward AwsNeuronCollectiveMatmul AwsNeuronIntMatmult
    AwsNeuronArgMax AwsNeuronArgMin AwsNeuronTopK AwsNeuronDropoutMaskV1 ResizeNearest ResizeBilinear ResizeNearestGrad
    """
)
"""Custom-call targets that the page of NCC_EHCA005 calls recognized."""

RESTRICTED = {"Convolution": "NCC_EVRF010", "ReduceWindow": "NCC_EVRF018", "ShiftRightArithmetic": "NCC_EVRF022"}
"""Instructions on no list, known from the error page that says when they are refused: otherwise they are accepted."""


def instruction_source(name: str) -> str:
    """Return the document that says that the compiler knows an instruction."""
    if name in XLA_OPERATOR_LIST:
        return "Neuron docs, neuronx-cc XLA operator list"
    if name in CUSTOM_CALLS:
        return "Neuron docs, neuronx-cc error code NCC_EHCA005, recognized custom calls"
    return f"Neuron docs, neuronx-cc error code {RESTRICTED[name]}"
