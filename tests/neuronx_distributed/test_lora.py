"""LoRA of layers of torch in one process, against peft, and its files."""

from __future__ import annotations

from pathlib import Path

import peft
import pytest
import torch
from torch import nn

from optimum_neuron.errors import ConfigError, ModelError
from optimum_neuron.neuronx_distributed import lora, lora_config


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embedding, self.linear = nn.Embedding(8, 6), nn.Linear(6, 5)
        self.conv2d = nn.Conv2d(1, 3, 2, padding=1)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.conv2d(self.linear(self.embedding(ids)).unsqueeze(1))


def _pair(**options: object) -> tuple[lora.LoraModel, nn.Module]:
    """Both models with the same random adapter."""
    targets = ["embedding", "linear", "conv2d"]
    ours = lora.LoraModel(Model(), lora_config.LoraConfig(lora_rank=2, lora_alpha=6, target_modules=targets, **options))
    shared = {"use_rslora": options.get("use_rslora", False), "bias": options.get("bias", "none")}
    theirs = peft.get_peft_model(Model(), peft.LoraConfig(r=2, lora_alpha=6, target_modules=targets, **shared))
    with torch.no_grad():
        for name, one in ours.named_parameters():
            if "lora_" not in name:
                continue
            one.normal_(generator=torch.Generator().manual_seed(one.numel()))
            last = name.rpartition(".lora_")[2]
            layer = theirs.get_submodule(f"base_model.model.{name.partition('.')[0]}")
            if name.startswith("embedding"):
                getattr(layer, f"lora_embedding_{last[0]}")["default"].copy_(one.T if last[0] == "A" else one)
            else:
                getattr(layer, f"lora_{last[0]}")["default"].weight.copy_(one)
    return ours, theirs


@pytest.mark.parametrize("use_rslora", [False, True])
def test_results_gradients_and_merged_weights_are_those_of_peft(use_rslora: bool) -> None:
    ours, theirs = _pair(use_rslora=use_rslora)
    ids = torch.arange(8).view(2, 4)
    for model in (ours, theirs):
        model(ids).square().sum().backward()
    torch.testing.assert_close(ours(ids), theirs(ids))
    torch.testing.assert_close(
        ours.linear.lora_A.weight.grad, theirs.base_model.model.linear.lora_A["default"].weight.grad
    )
    expected = theirs(ids)
    ours.merge_lora()
    torch.testing.assert_close(ours(ids), expected)
    merged = theirs.merge_and_unload().state_dict()
    for name, one in ours.module.named_parameters():
        if "base_layer" in name:
            torch.testing.assert_close(one, merged[name.replace(".base_layer", "")])
    ours.unmerge_lora()
    torch.testing.assert_close(ours.linear.base_layer.weight, Model().linear.weight)


@pytest.mark.parametrize("bias", ["all", "lora_only", "none"])
def test_what_trains_is_what_peft_trains(bias: str) -> None:
    ours, theirs = _pair(bias=bias)
    assert ours.get_nb_trainable_parameters() == theirs.get_nb_trainable_parameters()


def test_files(tmp_path: Path) -> None:
    ours, _ = _pair()
    ids = torch.arange(8).view(2, 4)
    ours.save_lora(str(tmp_path), "a")
    fresh = lora.LoraModel(Model(), lora_config.LoraConfig(2, ours.lora_config.target_modules, 6))
    assert not torch.equal(fresh(ids), ours(ids))
    fresh.load_lora(str(tmp_path), "a")
    assert torch.equal(fresh(ids), ours(ids))
    with pytest.raises(ConfigError):
        fresh.load_lora(str(tmp_path), "b")
    place = {"lora_save_dir": str(tmp_path), "lora_load_tag": "a"}
    again = lora.LoraModel(Model(), lora_config.LoraConfig(load_lora_from_ckpt=True, **place))
    assert torch.equal(again(ids), ours(ids)) and again.lora_config.lora_alpha == 6
    with pytest.raises(ConfigError) as error:  # its product would be scaled in another way
        lora.LoraModel(Model(), lora_config.LoraConfig(2, fresh.lora_config.target_modules, 8)).load_lora(
            str(tmp_path), "a"
        )
    assert error.value.details == {"saved": 3.0, "scaling": 4.0}
    with pytest.raises(ModelError):
        lora.LoraModel(Model(), lora_config.LoraConfig(2, ["linear"], 6)).load_lora(str(tmp_path), "a")
    fresh.load_state_dict(Model().state_dict())  # the model alone, under its own names
    ours.lora_config.merge_lora = True
    plain = Model()
    plain.load_state_dict(ours.state_dict())
    torch.testing.assert_close(plain(ids), ours(ids))
    with pytest.raises(ConfigError):
        lora_config.LoraConfig(lora_rank=0)
