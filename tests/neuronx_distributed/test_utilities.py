"""Small names that scripts import: torch, sizes of heads, and the standard library are the references."""

from __future__ import annotations

import collections
import logging

import pytest
import torch
from torch import nn

from optimum_neuron.errors import ConfigError, NotSupportedError, ShapeError, UnsupportedDtypeError, ValidationError
from optimum_neuron.neuronx_distributed import (
    arithmetic,
    logs,
    moving,
    padding,
    parallel_state,
    platforms,
    rotary,
    serialization,
    tensor_replacement,
)


@pytest.mark.parametrize("platform", [platforms.hardware.TRN1, platforms.hardware.TRN2])
@pytest.mark.parametrize("heads, padded", [(48, 64), (200, 224)])
def test_ranks_with_one_kv_head_have_all_of_its_heads(platform: platforms.hardware, heads: int, padded: int) -> None:
    kv_heads, ranks = 8, 32
    masks = [padding.generate_padding_mask(heads, padded, kv_heads, ranks, rank, platform) for rank in range(ranks)]
    assert {len(mask) for mask in masks} == {padded // ranks}
    groups = parallel_state.arrange_kv_groups(1, ranks, ranks // kv_heads, hardware_type=platform)
    assert [sum(int(masks[rank].sum()) for rank in group) for group in groups] == [heads // kv_heads] * kv_heads
    with pytest.raises(NotSupportedError):
        padding.generate_padding_mask(heads, padded, kv_heads, ranks, 0, platforms.hardware.TRN3)


@pytest.mark.parametrize("neighbors", [False, True])
def test_kv_groups_divide_each_tensor_group(neighbors: bool) -> None:
    groups = parallel_state.arrange_kv_groups(2, 8, 4, sequential_ranks_in_group=neighbors)
    parts = torch.arange(16).reshape(2, 2, 4) if neighbors else torch.arange(16).reshape(2, 4, 2).movedim(2, 1)
    assert groups == parts.reshape(-1, 4).tolist()
    with pytest.raises(ConfigError):
        parallel_state.arrange_kv_groups(1, 8, 3)


def test_replaced_outputs_reach_the_next_modules() -> None:
    model, x = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 2)), torch.rand(2, 3)
    first, last = model[0], model[1]
    tensor, mask = torch.rand(2, 3), torch.tensor([[True, False, True], [False, False, True]])
    expected, plain = last(torch.where(mask, tensor, first(x))), model(x)
    tensor_replacement.RuntimeRegister.module_superset = ["0"]
    changed, hooks = tensor_replacement.modify_model_for_tensor_replacement(model)
    torch.testing.assert_close(changed(x, tensor, mask), expected)
    torch.testing.assert_close(changed(x, tensor, torch.zeros_like(mask)), plain)
    with pytest.raises(ShapeError):
        changed(x, tensor)
    hooks["0"].remove()
    tensor_replacement.RuntimeRegister.module_superset = ["5"]
    with pytest.raises(ConfigError):
        tensor_replacement.modify_model_for_tensor_replacement(model)


def test_tensors_leave_an_object_and_return() -> None:
    pair = collections.namedtuple("pair", "a b")
    value = {"a": [torch.ones(2), (1, "x")], "b": pair(torch.zeros(3, requires_grad=True), {2}), "c": torch.Size([1])}
    manager = serialization.SerializationManager()
    rest, tensors, stubs = manager.serialize(value)
    assert [one.shape for one in stubs] == [one.shape for one in tensors] == [(2,), (3,)]
    assert [one.requires_grad for one in stubs] == [False, True]
    assert manager.extract_stubs(rest) == stubs
    again = manager.deserialize(rest, tensors)
    assert again["a"][0] is tensors[0] and again["b"] == value["b"] and again["c"] == value["c"]


def test_other_ranks_write_nothing(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("NXD_LOG_LEVEL", "warning")
    logs.get_log_level.cache_clear()
    logger = logs.get_logger("a test of logs")
    logger.info("quiet")
    logger.warning("first")
    monkeypatch.setenv("RANK", "1")
    logger.warning("second")
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1 and "first" in lines[0] and "test_utilities.py" in lines[0]
    monkeypatch.setenv("NXD_LOG_LEVEL", "loud")
    logs.get_log_level.cache_clear()
    with pytest.raises(ConfigError):
        logs.get_logger("another test of logs")
    logs.get_log_level.cache_clear()
    assert logs.LEVELS["off"] > logging.FATAL


def test_autocast_is_what_torch_says() -> None:
    given = (torch.ones(2), [torch.ones(1, dtype=torch.long)], 3)
    assert moving.cast_if_autocast_enabled(*given) is given or moving.cast_if_autocast_enabled(*given) == given
    with torch.autocast("cpu", dtype=torch.bfloat16):
        cast = moving.cast_if_autocast_enabled(*given)
        assert (cast[0].dtype, cast[1][0].dtype, cast[2]) == (torch.bfloat16, torch.long, 3)
        moving.verify_casted_dtype(cast[0])
        with pytest.raises(ValidationError):
            moving.verify_casted_dtype(given)


def test_parts_of_a_dimension() -> None:
    tensor = torch.arange(24).reshape(2, 12)
    indices = arithmetic.indices_split_along_dim(tensor, 1, 2, 4)
    assert indices is not None
    torch.testing.assert_close(tensor[:, indices], tensor.chunk(4, 1)[2])


def test_neighboring_features_turn_as_complex_numbers_do() -> None:
    q, k = torch.rand(2, 5, 3, 8), torch.rand(2, 5, 1, 8)
    angles = rotary.precompute_freqs_cis(8, 5, theta=100.0)
    expected_angles = torch.arange(5)[:, None] / 100.0 ** (torch.arange(4) / 4)
    torch.testing.assert_close(angles, expected_angles)
    turn = torch.polar(torch.ones(5, 4), angles)[:, None]
    found = rotary.apply_rotary_polar_compatible(q, k, angles.unsqueeze(0))
    for x, one in zip((q, k), found, strict=True):
        numbers = torch.view_as_complex(x.unflatten(-1, (4, 2)))
        torch.testing.assert_close(one, torch.view_as_real(numbers * turn).flatten(-2))
    with pytest.raises(UnsupportedDtypeError):
        rotary.apply_rotary_polar_compatible(q, k, angles.double())


def test_logical_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NEURON_LOGICAL_NC_CONFIG", raising=False)
    for instance, cores in (("trn1.32xlarge", 1), ("trn2.48xlarge", 2)):
        monkeypatch.setenv("OPTIMUM_NEURON_INSTANCE", instance)
        assert platforms.get_platform_lnc() == cores
    monkeypatch.setenv("NEURON_LOGICAL_NC_CONFIG", "1")
    assert platforms.get_platform_lnc() is platforms.LogicalNCConfig.LNC_1
