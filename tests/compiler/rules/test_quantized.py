"""Products with quantized weights: the stored dtypes that a core has, and the instructions."""

import dataclasses

import pytest
import torch

from optimum_neuron.base.core import Verdict
from optimum_neuron.compiler import DYNAMIC_LINEAR, PICK_EXPERTS, QUANTIZED_EXPERTS, QUANTIZED_LINEAR
from optimum_neuron.compiler.rules import OpCall, judge
from optimum_neuron.hardware import TARGETS
from optimum_neuron.weights import Scheme


def judged(operator, values, target="trn1"):
    """The ruling on a call with weights of a dtype; `target` is a name, or a target."""
    graph = torch.fx.Graph()
    tensors = {"x": torch.ones(2, 8, dtype=torch.bfloat16), "values": values, "scale": torch.ones(4, 1)}
    if operator is PICK_EXPERTS:
        tensors = {"values": values, "index": torch.ones(2, dtype=torch.int64)}
    nodes = [graph.placeholder(name) for name in tensors]
    for node, tensor in zip(nodes, tensors.values(), strict=True):
        node.meta["val"] = tensor
    call = graph.call_function(operator, (*nodes, *[None] * (len(operator._schema.arguments) - len(nodes))))
    call.meta["val"] = torch.ones(2, 4)
    return judge.judge_call(OpCall.from_node(call), TARGETS[target] if isinstance(target, str) else target)


@pytest.mark.parametrize("target", ["inf2", "trn1", "trn2", "trn3"])
@pytest.mark.parametrize("scheme", ["int8", "fp8", "int4", "int4-g64-zp"])
def test_schemes_are_legal(scheme, target):
    values = Scheme.parse(scheme).quantize(torch.randn(4, 128))["values"]
    ruling = judged(QUANTIZED_LINEAR, values, target)
    assert ruling.verdict is Verdict.DECOMPOSED and ruling.rule == "quantized-matmul" and ruling.source
    moved = judged(PICK_EXPERTS, values[None], target)
    assert (moved.verdict, moved.reason, moved.rule) == (Verdict.NATIVE, "maps to Gather", "quantized-rows")


@pytest.mark.parametrize(
    ("operator", "dtype", "instructions"),
    [
        (QUANTIZED_LINEAR, torch.int8, "ConvertElementType, DotGeneral, Mul"),
        (QUANTIZED_EXPERTS, torch.float8_e4m3fn, "ConvertElementType, DotGeneral, Mul"),
        (QUANTIZED_LINEAR, torch.uint8, "ShiftRightLogical, LogicalAnd, ConvertElementType, DotGeneral, Mul"),
        (DYNAMIC_LINEAR, torch.int8, "Abs, Reduce, Div, ConvertElementType, DotGeneral, Mul"),
    ],
)
def test_products_name_their_instructions(operator, dtype, instructions):
    assert judged(operator, torch.ones(4, 8).to(dtype)).reason == f"made of {instructions}"


@pytest.mark.parametrize("operator", [QUANTIZED_LINEAR, PICK_EXPERTS])
@pytest.mark.parametrize(
    ("dtype", "missing", "code"),
    [
        (torch.float8_e4m3fn, "float8_e4m3", "NCC_ESPP047"),
        (torch.float8_e5m2, "float8_e5m2", "NCC_ESPP004"),
        (torch.int8, "int8", "NCC_ESPP004"),
        (torch.uint8, "uint8", "NCC_ESPP004"),
    ],
)
def test_dtypes_that_a_core_lacks_are_refused(operator, dtype, missing, code):
    target, values = TARGETS["trn1"], torch.ones(4, 8).to(dtype)
    assert judged(operator, values, target).verdict is not Verdict.UNSUPPORTED
    core = dataclasses.replace(target.core, dtypes=tuple(name for name in target.core.dtypes if name != missing))
    target = dataclasses.replace(target, chip=dataclasses.replace(target.chip, core=core))
    ruling = judged(operator, values, target)
    assert (ruling.verdict, ruling.code) == (Verdict.UNSUPPORTED, code)
