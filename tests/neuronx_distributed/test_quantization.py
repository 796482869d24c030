"""Weights of 8 bits: torch's own quantization is the reference for int8, and its float8 numbers for the others."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.ao.quantization.observer import PerChannelMinMaxObserver

from optimum_neuron.errors import AssertedConfigError, ConfigError, NotSupportedError
from optimum_neuron.neuronx_distributed import (
    layers,
    model_builder,
    observer,
    quantization as q,
    quantized_layers as ql,
    sharding,
    simulated,
)

PER_CHANNEL = q.get_default_per_channel_custom_qconfig_dict
CONFIGS = {
    "int8": q.get_default_custom_qconfig_dict(),
    "int8 of channels": PER_CHANNEL(),
    "float8 of channels": {**PER_CHANNEL(), "quantized_dtype": q.QuantizedDtype.F8E4M3},
}


class Pair(nn.Module):
    def __init__(self, *, is_divided: bool = True) -> None:
        super().__init__()
        self.up = layers.ColumnParallelLinear(4, 8, gather_output=False) if is_divided else nn.Linear(4, 8)
        self.down = layers.RowParallelLinear(8, 4, input_is_parallel=True) if is_divided else nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(torch.relu(self.up(x)))


@pytest.mark.parametrize("kind", sorted(CONFIGS))
def test_two_ranks_compute_the_dequantized_model(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if kind.startswith("float8"):  # older cores have no arithmetic for it
        monkeypatch.setenv("OPTIMUM_NEURON_INSTANCE", "trn3-gen1-ultraserver")
    torch.manual_seed(0)
    whole, config, x = Pair(is_divided=False), CONFIGS[kind], torch.rand(3, 4)
    dtype = config["quantized_dtype"].value
    if config["quantization_type"] is q.QuantizationType.PER_TENSOR_SYMMETRIC:
        quantized = q.quantize_pytorch_model_per_tensor_symmetric(whole, dtype=dtype)
    else:
        quantized = q.quantize_pytorch_model_per_channel_symmetric(whole, dtype=dtype)
    dequantized = copy.deepcopy(whole)
    for name, layer in dequantized.named_children():
        own = quantized.get_submodule(name)
        layer.weight.data = own.weight.float() * own.scale
        torch.testing.assert_close(layer.weight, whole.get_submodule(name).weight, atol=0.02, rtol=0.07)
    torch.testing.assert_close(quantized(x), dequantized(x))
    with simulated.NxDParallelState(world_size=2, tensor_model_parallel_size=2):
        model = ql.convert(Pair(), config, include=["up"])
        assert model.down.weight.partition_dim == 1
        model = ql.convert(model, config)
        built = model_builder.ModelBuilder(model).trace(x, tag="x").compile(compiler_workdir=tmp_path)
        built.set_weights(sharding.shard_checkpoint(quantized.state_dict(), model))
    built.to_neuron()
    torch.testing.assert_close(built(x), dequantized(x))


DEPRECATED = pytest.mark.filterwarnings("ignore:torch.*deprecated")
"""Quantized tensors of torch, which the vendor's functions return."""


@DEPRECATED
def test_int8_is_that_of_torch() -> None:
    linear = nn.Linear(6, 4)
    with pytest.warns(DeprecationWarning):
        theirs = torch.ao.quantization.quantize_dynamic(nn.Sequential(linear), {nn.Linear}, dtype=torch.qint8)
    state = theirs.state_dict()
    q.convert_qint8_to_int8_state_dict(state)
    ours = q.quantize_pytorch_model_per_tensor_symmetric(nn.Sequential(linear)).state_dict()
    assert sorted(state) == sorted(ours) == ["0.bias", "0.scale", "0.weight"]
    torch.testing.assert_close(dict(state), dict(ours))


@DEPRECATED
def test_scales_of_channels() -> None:
    tensor = torch.tensor([[1.0, -190, -950, 900, 100], [2.0, 255, -900, 80, -80]])
    for axis, largest in ((0, [950.0, 900]), (1, [2.0, 255, 950, 900, 100])):
        scales = q.quantize_per_channel_symmetric(tensor, axis).q_per_channel_scales().float()
        torch.testing.assert_close(scales, torch.tensor(largest) / 127)
    values, scale = q.quantize_fp8_per_channel(tensor, torch.float8_e4m3fn, 0)
    assert values.float().abs().amax(1).tolist() == [240.0, 240.0]
    torch.testing.assert_close(values.float() * scale, tensor, rtol=0.07, atol=0.1)


def test_convert_chooses_modules() -> None:
    model = nn.ModuleDict({"mlp": Pair(), "attention": Pair()})
    one = ql.convert(model, include=["*mlp.down"])
    assert type(one["mlp"].down) is ql.QuantizedRowParallel and type(one["mlp"].up) is layers.ColumnParallelLinear
    other = ql.convert(model, include="mlp")
    assert type(other["mlp"].up) is ql.QuantizedColumnParallel
    assert type(other["attention"].up) is layers.ColumnParallelLinear
    assert ql.convert(model, inplace=True, modules_to_not_convert=["mlp"]) is model
    assert type(model["attention"].down) is ql.QuantizedRowParallel and type(model["mlp"].down) is not type(
        model["attention"].down
    )


def test_wrong_options() -> None:
    for options, error in (
        ({"quantization_type": "something"}, ConfigError),
        ({"quantization_type": "blockwise_symmetric"}, NotSupportedError),
        ({"quantized_dtype": torch.float16}, ConfigError),
        ({"activation_quantization_type": "dynamic"}, NotSupportedError),
        ({"quantization_per_channel_axis": 1}, NotSupportedError),
        ({"keep_master_weight": True}, NotSupportedError),
    ):
        with pytest.raises(error):
            ql.QuantizedColumnParallel(4, 8, **options)
    with pytest.raises(ConfigError):
        ql.convert(Pair(), include=["nothing"])
    with pytest.raises(ConfigError):
        ql.convert(Pair(), include=["up"], modules_to_not_convert=["down"])
    with pytest.raises(ConfigError):
        q.quantize_pytorch_model_per_channel_symmetric(Pair(is_divided=False), dtype=torch.int4)


@pytest.mark.parametrize("blocks", [(2, 3), (1, 6), (4, 1), (4, 3), (4,)])
def test_blocks_have_a_scale_each(blocks: tuple[int, ...]) -> None:
    tensor, exponents = torch.randint(-128, 128, (4, 6), dtype=torch.int8), torch.randint(120, 134, blocks)
    full = exponents.reshape(*blocks, *[1] * (2 - len(blocks)))
    full = full.repeat_interleave(4 // full.shape[0], 0).repeat_interleave(6 // full.shape[1], 1)
    expected = torch.ldexp(tensor.float(), full - 127)
    for scale in (exponents.to(torch.uint8), torch.ldexp(torch.ones(blocks), exponents - 127)):
        torch.testing.assert_close(q.blockwise_scale_dequantize(tensor, scale, torch.float32), expected)


@pytest.mark.parametrize("blocks", [(4, 6), (3, 1), (1, 1, 1), (8, 6)])
def test_other_shapes_are_no_blocks(blocks: tuple[int, ...]) -> None:
    with pytest.raises(AssertedConfigError):
        q.block_shapes((4, 6), blocks)


@pytest.mark.parametrize("axis", [0, 1])
def test_an_observer_keeps_the_largest_values_of_channels(axis: int) -> None:
    tensor, later = torch.randn(3, 4), torch.randn(3, 4)
    mine = observer.PerChannelAbsMaxObserver.with_args(ch_axis=axis)()
    theirs = PerChannelMinMaxObserver(axis, torch.qint8, torch.per_channel_symmetric, quant_min=-127, quant_max=127)
    for one in (tensor, later):
        assert mine(one) is one
        theirs(one)
    for found, expected in zip(mine.calculate_qparams(), theirs.calculate_qparams(), strict=True):
        torch.testing.assert_close(found, expected)
    with pytest.raises(ConfigError):
        observer.PerChannelAbsMaxObserver(dtype=torch.quint8)
