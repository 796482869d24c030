"""What a cache stores of keys and values: layouts, errors of rounding, and rings of float8."""

from __future__ import annotations

import pytest
import torch

from optimum_neuron.models.common import CACHE_NAMES, Ring, as_cached, key_value_state, stored_as

KEY = torch.randn(2, 3, 5, 8, generator=torch.Generator().manual_seed(0))


def test_scales_have_the_layout_of_keys_and_values_of_width_1():
    state = stored_as(key_value_state(3, 8, 6), "int8")
    assert tuple(tensor.name for tensor in state) == CACHE_NAMES
    shapes = [tensor.shape(2, 16) for tensor in state]
    assert shapes == [(2, 3, 8, 16), (2, 3, 16, 6), (2, 3, 1, 16), (2, 3, 16, 1)]
    assert [tensor.dtype for tensor in stored_as(key_value_state(3, 8, 6), "fp8")] == ["float8_e4m3fn"] * 2


def test_int8_is_rounded_by_token_and_head():
    loud = KEY.clone()
    loud[:, :, 2] *= 1e4
    key, _ = as_cached(torch.int8, loud, loud)
    assert ((key - loud).abs() <= loud.abs().amax(-1, keepdim=True) / 254 * 1.001).all()
    zeros, _ = as_cached(torch.int8, torch.zeros_like(KEY), KEY)
    assert (zeros == 0).all()


def test_fp8_ends_at_240():
    key, value = as_cached(torch.float8_e4m3fn, KEY, KEY * 1e4)
    assert ((key - KEY).abs() <= KEY.abs() / 16 + 2**-9).all() and value.abs().max() == 240


@pytest.mark.parametrize("num_tokens", [3, 5])
def test_rings_move_float8(num_tokens):
    counts = torch.tensor([num_tokens, 2])
    ring = Ring(positions_BT=torch.arange(num_tokens).expand(2, -1), num_new_B=counts)
    keys = torch.full((2, 3, 8, 4), 7.0).to(torch.float8_e4m3fn)
    values = keys.transpose(2, 3).contiguous()
    new = KEY[:, :, :num_tokens].to(torch.float8_e4m3fn)
    ring.write(keys, values, new, new)
    torch.testing.assert_close(values.float(), keys.float().transpose(2, 3))
    last = num_tokens - 1
    torch.testing.assert_close(values[0, :, last % 4].float(), new[0, :, last].float())
    torch.testing.assert_close(values[1, :, 1].float(), new[1, :, 1].float())
