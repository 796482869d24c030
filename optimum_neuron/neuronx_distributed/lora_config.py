"""Options of LoRA."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any, Literal

from ..errors import ConfigError, invalid_choice

_OF_ADAPTER = (
    *("bias", "init_lora_weights", "lora_alpha", "lora_dropout", "lora_rank", "modules_to_save", "target_modules"),
    "use_rslora",
)
"""Options of the layers, which an adapter is saved with; the others say where it is, and how it is saved."""


@dataclasses.dataclass
class LoraConfig:
    """Options of LoRA.

    Args:
        lora_rank: rank of the added layers.
        target_modules: names of modules, or ends of names, or one regular expression of whole names.
        lora_alpha: the product is scaled by `lora_alpha / lora_rank`.
        lora_dropout: dropout of its inputs.
        bias: which biases train: "none", "all", or "lora_only".
        use_rslora: scale by `lora_alpha / sqrt(lora_rank)`.
        init_lora_weights: how `lora_A` is drawn; the product is zero at the start.
        modules_to_save: names of further modules that train, and are saved.
        lora_verbose: print how many parameters train.
        load_lora_from_ckpt: load an adapter when the model is made; options of the layers are those it was saved with.
        lora_load_tag: name of that checkpoint.
        lora_save_dir: folder of adapters.
        merge_lora: save the model with the product in its weights.
        save_lora_base: save the model's own weights too.
        save_lora_config_adapter: save the options in the adapter's file.
        merge_sharded_lora: save parts of all ranks in one.
    """

    lora_rank: int = 16
    target_modules: list[str] | str | None = None
    lora_alpha: float = 8
    lora_dropout: float = 0.0
    bias: Literal["none", "all", "lora_only"] = "none"
    use_rslora: bool = False
    init_lora_weights: Literal["default", "gaussian"] = "default"
    modules_to_save: list[str] | None = None
    lora_verbose: bool = False
    load_lora_from_ckpt: bool = False
    lora_load_tag: str | None = None
    lora_save_dir: str = "lora_adapter"
    merge_lora: bool = False
    save_lora_base: bool = False
    save_lora_config_adapter: bool = False
    merge_sharded_lora: bool = True

    def __post_init__(self) -> None:
        for name, known in (("bias", ("none", "all", "lora_only")), ("init_lora_weights", ("default", "gaussian"))):
            if getattr(self, name) not in known:
                raise invalid_choice(name, getattr(self, name), known)
        if self.lora_rank < 1:
            message = f"lora_rank is {self.lora_rank}."
            raise ConfigError(message, hint="Pass a number from 1.", lora_rank=self.lora_rank)

    def as_saved(self, options: Mapping[str, Any]) -> LoraConfig:
        """Return these options, with the options of the layers from a saved adapter.

        Args:
            options: what was saved with it.
        """
        return dataclasses.replace(self, **{name: options[name] for name in _OF_ADAPTER if name in options})

    @property
    def scaling(self) -> float:
        """What the product of the added layers is multiplied by."""
        return self.lora_alpha / (math.sqrt(self.lora_rank) if self.use_rslora else self.lora_rank)
