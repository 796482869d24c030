"""Small names that scripts import: torch, sizes of heads, and the standard library are the references."""

from __future__ import annotations

import collections
import json
import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from optimum_neuron.errors import ConfigError, NotSupportedError, ShapeError, UnsupportedDtypeError, ValidationError
from optimum_neuron.neuronx_distributed import (
    arithmetic,
    logs,
    moe_validator,
    moving,
    padding,
    parallel_state,
    platforms,
    rotary,
    serialization,
    tensor_replacement,
    timeline,
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


@pytest.mark.parametrize(
    ("dropless", "capacity", "activation", "gated", "expected"),
    [
        (True, None, "silu", True, 0.0),
        (True, 1.5, "silu", True, 0.0),
        (True, -1.0, "silu", True, -1.0),
        (True, 0.0, "gelu", True, ConfigError),
        (True, 0.0, "silu", False, ConfigError),
        (False, 0.0, "gelu", True, ConfigError),
        (False, 2.0, "gelu", False, 2.0),
        (False, None, "gelu", True, None),
    ],
)
@pytest.mark.parametrize("source", ["hf", "megatron", "dbrx"])
def test_options_of_experts(
    tmp_path: Path, source: str, dropless: bool, capacity: Any, activation: str, gated: bool, expected: Any
) -> None:
    """The table of behaviors in NxD's own tests of the validator."""
    moe = SimpleNamespace(dropless=dropless, capacity_factor=capacity, glu_mlp=gated)
    content = {"model_type": "mixtral", "hidden_act": activation}
    if source == "dbrx":
        content = {"model_type": "dbrx", "ffn_config": {"ffn_act_fn": {"name": activation}}}
    file = tmp_path / "config.json"
    file.write_text(json.dumps(content))
    model = SimpleNamespace(moe=moe, model_config=file, activation=activation)
    config = SimpleNamespace(model_source="megatron" if source == "megatron" else "hf", model=model)
    check = moe_validator.MoeConfigValidator(config).validate_moe_config
    if expected is ConfigError:
        with pytest.raises(ConfigError):
            check()
    else:
        check()
        assert moe.capacity_factor == expected
    del model.moe
    with pytest.raises(AttributeError):
        check()


def test_timeline(tmp_path: Path) -> None:
    """A file that is JSON after each step, as viewers of Chrome's format read it, and begins anew."""
    file = tmp_path / "new" / "timeline.json"
    for _ in range(2):
        mine = timeline.Timeline(file, 0)
        assert json.loads(file.read_text()) == []
        for step in range(2):
            with mine.event("outer"):
                mine.mark_event_start("inner")
                mine.mark_event_end("inner")
            mine.mark_step_end()
            events = json.loads(file.read_text())
            assert [(one["name"], one["args"]["step"]) for one in events][-2:] == [("outer", step), ("inner", step)]
            outer, inner = events[-2:]
            assert outer["ts"] <= inner["ts"] and inner["ts"] + inner["dur"] <= outer["ts"] + outer["dur"]
    assert len(events) == 4
    with pytest.raises(ConfigError):
        mine.mark_event_end("other")
    mine.mark_event_start("open")
    with pytest.raises(ConfigError):
        mine.mark_event_start("open")
    with pytest.raises(ConfigError):
        mine.mark_step_end()
    silent = timeline.Timeline(None, 0)
    silent.mark_event_start("x")
    silent.mark_step_end()
