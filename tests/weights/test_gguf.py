"""Tensors of GGUF files under other names: numbers are those that the package gguf of llama.cpp reads."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from optimum_neuron.weights import GgufFile, GgufName, GgufSource, Scheme, dequantize

gguf = pytest.importorskip("gguf")

NUM_HEADS, ROWS, COLUMNS = 3, 24, 64
FORMS = ("F32", "F16", "BF16", "Q8_0", "Q4_0", "Q5_1")


@pytest.fixture
def matrices():
    generator = torch.Generator().manual_seed(0)
    return {form: torch.randn(ROWS, COLUMNS, generator=generator).numpy() for form in FORMS}


def source_of(folder, tensors, names, alignment=32):
    """Write tensors and their forms, and return them under other names."""
    writer = gguf.GGUFWriter(folder / "m.gguf", "llama")
    writer.add_custom_alignment(alignment)
    for name, (weight, form) in tensors.items():
        kind = gguf.GGMLQuantizationType[form]
        writer.add_tensor(name, weight if form == "I8" else gguf.quantize(weight, kind), raw_dtype=kind)
    for write in (writer.write_header_to_file, writer.write_kv_data_to_file, writer.write_tensors_to_file):
        write()
    writer.close()
    return GgufSource(GgufFile.open(folder / "m.gguf"), names)


@pytest.fixture
def source(matrices, tmp_path):
    """Matrices in several forms, each also as queries, and experts."""
    names = {name: GgufName(name=name) for name in (*FORMS, "experts")}
    names |= {f"{form} by halves": GgufName(name=form, num_heads=NUM_HEADS) for form in FORMS}
    names["other"] = GgufName(name="not in the file")
    tensors = {form: (weight, form) for form, weight in matrices.items()}
    return source_of(tmp_path, tensors | {"experts": (np.stack([matrices["F32"]] * 2), "Q8_0")}, names)


def read(weight, form):
    """Numbers of a matrix after the package wrote it."""
    kind = gguf.GGMLQuantizationType[form]
    return torch.from_numpy(gguf.dequantize(gguf.quantize(weight, kind), kind).copy())


def in_order(rows):
    """Rows of heads as transformers has them: `LlamaModel.permute` of convert_hf_to_gguf.py, inverted."""
    halves = rows.reshape(NUM_HEADS, rows.shape[0] // NUM_HEADS // 2, 2, *rows.shape[1:])
    return halves.swapaxes(1, 2).reshape(rows.shape)


@pytest.mark.parametrize("form", FORMS)
def test_numbers_are_those_of_the_package(form, source, matrices):
    expected = read(matrices[form], form)
    tensor, is_copied = source.join([form])
    assert torch.equal(tensor.float(), expected) and is_copied == form.startswith("Q")
    assert (source.specs[form].shape, f"torch.{source.specs[form].dtype}") == (tensor.shape, str(tensor.dtype))
    ordered, is_copied = source.join([f"{form} by halves"])
    assert torch.equal(ordered.float(), in_order(expected)) and is_copied
    both, is_copied = source.join([form, f"{form} by halves"])
    assert torch.equal(both, torch.cat([expected, in_order(expected)])) and is_copied and both.dtype == torch.float32


@pytest.mark.parametrize(("form", "scheme"), [("Q8_0", "int8-g32"), ("Q4_0", "int4-g32")])
def test_numbers_of_a_scheme_are_stored_as_they_are(form, scheme, source, matrices):
    expected, own = read(matrices[form], form), Scheme.parse(scheme)
    for name, numbers in ((form, expected), (f"{form} by halves", in_order(expected))):
        assert source.scheme_of(name) == scheme
        parts = source.parts(name, own)
        specs = {part: (spec.shape, f"torch.{spec.dtype}") for part, spec in own.specs(ROWS, COLUMNS).items()}
        assert {part: (tensor.shape, str(tensor.dtype)) for part, tensor in parts.items()} == specs
        assert torch.equal(dequantize(parts["values"], parts["scale"]), numbers)
    assert source.parts(form, Scheme.parse("fp8")) is None and source.parts("F32", own) is None


def test_experts_and_names_that_the_file_lacks(source, matrices):
    experts, is_copied = source.join(["experts"])
    assert torch.equal(experts, torch.stack([read(matrices["F32"], "Q8_0")] * 2)) and is_copied
    parts = source.parts("experts", Scheme.parse("int8-g32"))
    assert torch.equal(dequantize(parts["values"], parts["scale"]), experts)
    assert "other" not in source.specs and source.scheme_of("F16") is None and source.origin.endswith("m.gguf")


def test_a_tensor_at_an_odd_byte_is_copied(matrices, tmp_path):
    for count in (1, 2, 3, 4):
        tensors = {"a": (np.arange(count, dtype=np.int8), "I8"), "b": (matrices["F32"], "F32")}
        tensor, is_copied = source_of(tmp_path, tensors, {"b": GgufName(name="b")}, alignment=1).join(["b"])
        begin = GgufFile.open(tmp_path / "m.gguf").entries["b"].begin
        assert torch.equal(tensor, torch.from_numpy(matrices["F32"])) and tensor.data_ptr() % 4 == 0
        assert is_copied == (begin % 4 > 0)
