"""LoRA for layers that ranks divide, and for those of torch: layers of low rank beside frozen ones.

    config = LoraConfig(lora_rank=8, target_modules=["q_proj", "v_proj"])
    model = LoraModel(model, config)
    model.save_lora("adapter")

The product of `lora_A` and `lora_B` is added to what the frozen layer returns.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ..base.foreign import parameter_facts
from ..errors import ArtifactError, ConfigError, ModelError
from ..files.atomic import write_bytes
from ..files.documents import read_document
from ..xla import serialization
from . import mappings
from .agreement import ending_together
from .attributes import is_divided, part_of
from .checkpointing import ranks_of_axes
from .lora_config import LoraConfig
from .lora_layers import LoraLayer, lora_layer
from .moving import to_cpu
from .parallel_state import TENSOR

CONFIG = "adapter_config.json"
"""File with the options of an adapter."""
_ADAPTER, _HINT = "adapter_model.pt", "Pass the folder and the tag of a saved adapter."


class LoraModel(nn.Module):
    """A model whose chosen layers have layers of low rank beside them, which alone train.

    States and parameters have the names of the model; `state_dict` returns the adapter.

    Args:
        module: the model, which is changed.
        config: the options.
        in_stages: divides the model with its new layers over ranks, which then hold the adapter's part of their stages.

    Raises:
        ConfigError: the model has no such modules.
        ModelError: a module is of a kind without LoRA.
    """

    def __init__(
        self, module: nn.Module, config: LoraConfig, in_stages: Callable[[nn.Module], nn.Module] | None = None
    ) -> None:
        super().__init__()
        states: dict[str, Any] | None = None
        if config.load_lora_from_ckpt:
            with ending_together(_HINT):
                states, config = _read(config)
        self.module, self.lora_config = module, config
        targets = [name for name, _ in module.named_modules() if self._is_target(name)]
        if not targets:
            message = f"{type(module).__name__} has no modules {config.target_modules}."
            raise ConfigError(message, hint="Name modules of it in target_modules.", targets=config.target_modules)
        for name in targets:
            parent, _, last = name.rpartition(".")
            setattr(module.get_submodule(parent), last, lora_layer(name, module.get_submodule(name), config))
        self._freeze()
        if in_stages is not None:
            self.module = in_stages(module)
        if states is not None:
            with ending_together(_HINT):
                self.load_state_dict(states)
        if config.lora_verbose:
            self.print_trainable_parameters()

    def _is_target(self, name: str) -> bool:
        targets = self.lora_config.target_modules
        if isinstance(targets, str):
            return re.fullmatch(targets, name) is not None
        return bool(name) and any(name == one or name.endswith(f".{one}") for one in targets or ())

    def _freeze(self) -> None:
        bias, saved = self.lora_config.bias, self.lora_config.modules_to_save or ()
        for name, parameter in self.module.named_parameters():
            is_saved = any(f".{one}." in f".{name}" for one in saved)
            is_bias = name.endswith("bias") and (bias == "all" or (bias == "lora_only" and ".base_layer." in name))
            parameter.requires_grad_("lora_" in name or is_saved or is_bias)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Call the model."""
        return self.module(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("module"), name)

    def get_base_model(self) -> nn.Module:
        """Return the model."""
        return self.module

    def named_parameters(self, *args: Any, **kwargs: Any) -> Iterator[tuple[str, nn.Parameter]]:
        """Return the model's parameters under its own names."""
        return self.module.named_parameters(*args, **kwargs)

    def get_nb_trainable_parameters(self) -> tuple[int, int]:
        """Return how many elements train, and how many there are."""
        sizes = [(one.numel(), one.requires_grad) for one in self.module.parameters()]
        return sum(size for size, trains in sizes if trains), sum(size for size, _ in sizes)

    def print_trainable_parameters(self) -> None:
        """Print how many elements train."""
        trained, total = self.get_nb_trainable_parameters()
        print(f"trainable params: {trained:,d} || all params: {total:,d} || trainable%: {100 * trained / total:.4f}")

    def _layers(self) -> list[LoraLayer]:
        return [one for one in self.module.modules() if isinstance(one, LoraLayer)]

    def merge_lora(self) -> None:
        """Add the products to the weights of the model."""
        for layer in self._layers():
            layer.merge()

    def unmerge_lora(self) -> None:
        """Subtract the products from the weights again."""
        for layer in self._layers():
            layer.unmerge()

    def state_dict(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Return the adapter; with `merge_lora` or `save_lora_base` the model too."""
        config = self.lora_config
        if config.merge_lora:
            self.merge_lora()
            try:
                held = {name: value.clone() for name, value in self.module.state_dict().items() if "lora_" not in name}
            finally:
                self.unmerge_lora()
            return {name.replace(".base_layer.", "."): value for name, value in held.items()}
        trained = {name for name, one in self.module.named_parameters() if one.requires_grad}
        own = self.module.state_dict(keep_vars=True)
        chosen = own if config.save_lora_base else {name: own[name] for name in own if name in trained}
        states = {name.replace(".base_layer.", "."): self._merged(name, value) for name, value in chosen.items()}
        if config.save_lora_config_adapter:
            states["lora_config"] = dataclasses.asdict(config)
        return states

    def _merged(self, name: str, value: torch.Tensor) -> torch.Tensor:
        """A parameter of the adapter, of all ranks if that is chosen."""
        is_whole = not is_divided(value) or parameter_facts(value).fused_qkv  # a fused one has rows of three weights
        if "lora_" not in name or is_whole or not self.lora_config.merge_sharded_lora:
            return value.detach()
        return mappings.gather(value.detach(), value.partition_dim, TENSOR.group())

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False) -> Any:
        """Load an adapter, the model, or both.

        Args:
            state_dict: the states, under the names of the model before or after LoRA.
            strict: all of the adapter or all of the model is there, and nothing else.
            assign: as of torch.
        """
        own = self.module.state_dict(keep_vars=True)
        names = {name.replace(".base_layer.", "."): name for name in own} | {name: name for name in own}
        states = {names.get(name, name): value for name, value in state_dict.items() if name != "lora_config"}
        rank = TENSOR.rank() if TENSOR.is_made() else 0
        for name, value in states.items():
            if name in own and is_divided(own[name]) and value.shape != own[name].shape:
                states[name] = part_of(value, own[name], rank, f"of {name}")
        unknown = [name for name in states if name not in own]
        found = self.module.load_state_dict(states, strict=False, assign=assign)
        missing = [name for name in own if name not in states]
        halves = [{name for name in missing if ("lora_" in name) is is_lora} for is_lora in (True, False)]
        if strict and (unknown or all(halves)):
            message = f"The states lack {', '.join(missing[:5])}, or have others: {unknown[:5]}."
            raise ModelError(
                message, hint="Load an adapter with the same target_modules.", missing=missing, names=unknown
            )
        return found

    def save_lora(self, save_dir: str | None = None, adapter_tag: str | None = None) -> None:
        """Save the adapter of a model that one process has; ranks call `save_checkpoint` instead.

        Args:
            save_dir: the folder; None: that of the options.
            adapter_tag: folder in it.
        """
        if TENSOR.is_made() and TENSOR.size() > 1:
            message = "Each rank has a part of the adapter."
            raise ConfigError(message, hint="Call save_checkpoint(folder, tag, model=model).")
        folder = Path(self.lora_config.lora_save_dir if save_dir is None else save_dir, adapter_tag or "")
        folder.mkdir(parents=True, exist_ok=True)
        serialization.write_file(to_cpu(self.state_dict()), folder / _ADAPTER)
        self.save_config(folder)

    def save_config(self, save_dir: str | Path | None = None) -> None:
        """Save the options, which `load_lora_from_ckpt` reads.

        Args:
            save_dir: the folder; None: that of the options.
        """
        folder = Path(self.lora_config.lora_save_dir if save_dir is None else save_dir)
        folder.mkdir(parents=True, exist_ok=True)
        text = json.dumps(dataclasses.asdict(self.lora_config), indent=2)
        write_bytes(folder / CONFIG, text.encode(), error=ArtifactError)

    def load_lora(self, save_dir: str | None = None, adapter_tag: str | None = None) -> None:
        """Load an adapter that `save_lora` or `save_checkpoint` has written.

        Args:
            save_dir: the folder; None: that of the options.
            adapter_tag: folder in it; None: that of the options.
        """
        with ending_together(_HINT):
            states, saved = _read(self.lora_config, save_dir, adapter_tag)
            if saved.scaling != self.lora_config.scaling:
                message = f"The adapter was saved with a scaling of {saved.scaling:g}, and this model has "
                message += f"{self.lora_config.scaling:g}."
                hint = "Pass the adapter's lora_alpha, lora_rank, and use_rslora, or load_lora_from_ckpt=True."
                raise ConfigError(message, hint=hint, saved=saved.scaling, scaling=self.lora_config.scaling)
            self.load_state_dict(states)


def _read(config: LoraConfig, save_dir: str | None = None, tag: str | None = None) -> tuple[dict[str, Any], LoraConfig]:
    """The states of a saved adapter on this rank, and the options with those it was saved with, if it has any."""
    top = Path(config.lora_save_dir if save_dir is None else save_dir)
    folder = top / (tag or config.lora_load_tag or "")
    tp, pp, _ = ranks_of_axes()
    part = f"dp_rank_00_tp_rank_{tp:02d}_pp_rank_{pp:02d}.pt"
    files = (folder / _ADAPTER, folder / "model" / part, folder / part)
    file = next((one for one in files if one.is_file()), None)
    if file is None:
        message = f"{folder} has no adapter: neither {_ADAPTER} nor model/{part}."
        raise ConfigError(message, hint=_HINT, path=str(folder))
    is_by_tensor = Path(serialization.tensors_folder(str(file))).is_dir()
    states = serialization.load_tensors(file) if is_by_tensor else serialization.read_file(file)
    options = states.pop("lora_config", None)
    for other in (folder / CONFIG, top / CONFIG):
        if options is None and other.is_file():
            options = read_document(other)
    return states, config.as_saved(options or {})


def get_lora_model(
    model: nn.Module, lora_config: LoraConfig | None, in_stages: Callable[[nn.Module], nn.Module] | None = None
) -> nn.Module:
    """Return a model with LoRA, or without options the model itself.

    Args:
        model: the model.
        lora_config: the options.
        in_stages: divides the model over ranks.
    """
    if lora_config is not None:
        return LoraModel(model, lora_config, in_stages)
    return model if in_stages is None else in_stages(model)
