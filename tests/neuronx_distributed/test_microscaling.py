"""Numbers of 4 and 8 bits in runs: transformers' reader of gpt-oss, and a table of the OCP specification."""

from __future__ import annotations

import pytest
import torch
from transformers.integrations.mxfp4 import convert_moe_packed_tensors

from optimum_neuron.errors import AssertedConfigError
from optimum_neuron.neuronx_distributed import microscaling

OF_SPECIFICATION = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]
"""Table 5 of OCP Microscaling Formats 1.0."""


def test_numbers_are_those_of_transformers() -> None:
    torch.manual_seed(0)
    blocks = torch.randint(0, 256, (3, 8, 2, 16), dtype=torch.uint8)
    scales = torch.randint(119, 135, (3, 8, 2), dtype=torch.uint8)
    expected = convert_moe_packed_tensors(blocks, scales).transpose(1, 2)
    codes = microscaling.split_byte_4bit_tensor(blocks)
    fours = microscaling.pack_fp4_x4_uint16(blocks)
    assert torch.equal(microscaling.get_mxfp4_tensor(blocks, scales), expected)
    assert torch.equal(microscaling.dequant_byte_4bit_tensor(codes, scales), expected)
    assert torch.equal(microscaling.get_mxfp4_tensor_from_uint16(fours, scales), expected)
    apart = microscaling.get_mxfp4_tensor_from_uint16(fours, scales, output_quad_row=True)
    assert apart.shape == (3, 8, 16, 4) and torch.equal(apart.flatten(-2), expected)
    assert torch.equal(microscaling.pack_byte_4bit_tensor(codes), blocks)
    halves = microscaling.split_gate_up(blocks, scales, scales[..., 0])
    for half, first in ((halves[:2], 0), (halves[3:5], 1)):
        assert torch.equal(microscaling.get_mxfp4_tensor(*half), expected[:, first::2])


def test_codes() -> None:
    numbers = [*OF_SPECIFICATION, *(-one for one in OF_SPECIFICATION)]
    assert numbers == microscaling.FP4_VALUES
    codes = torch.arange(16, dtype=torch.uint8).reshape(2, 8)
    assert microscaling.apply_lut_byte_4bit_tensor(codes).tolist() == numbers


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2])
def test_numbers_of_eight_bits(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    values = torch.randn(4, 2, 32).to(dtype)
    scales = torch.randint(120, 134, (4, 2), dtype=torch.uint8)
    expected = (values.double() * 2.0 ** (scales.double() - 127)[..., None]).flatten(-2).bfloat16()
    packed = values.view(torch.uint32)
    assert torch.equal(microscaling.get_mxfp8_tensor_from_uint32(packed, scales, fp8_dtype=dtype), expected)
    no_number = torch.full((1, 8), -1, dtype=torch.int32).view(torch.uint32)
    one = torch.tensor([127], dtype=torch.uint8)
    options = {"fp8_dtype": dtype, "output_quad_row": True}
    assert microscaling.get_mxfp8_tensor_from_uint32(no_number, one, **options).isnan().all()
    replaced = microscaling.get_mxfp8_tensor_from_uint32(no_number, one, **options, replace_nan_with_zeros=True)
    assert replaced.shape == (8, 4) and not replaced.any()


def test_wrong_shapes() -> None:
    blocks = torch.zeros(2, 16, dtype=torch.uint8)
    for wrong in (torch.zeros(3, dtype=torch.uint8), torch.zeros(2, 1, dtype=torch.uint8)):
        with pytest.raises(AssertedConfigError):
            microscaling.get_mxfp4_tensor(blocks, wrong)
    for wrong in (blocks[:, :3], blocks[:, :0], blocks.int()):
        with pytest.raises(AssertedConfigError):
            microscaling.pack_byte_4bit_tensor(wrong)
