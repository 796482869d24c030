"""Models to train, as scripts of Optimum Neuron load them: transformers' own classes.

`NeuronTrainer` shards them by the layout of its arguments, so a model needs no other code and keeps its names.

    from optimum_neuron.trainer.models import NeuronModelForCausalLM

    model = NeuronModelForCausalLM.from_pretrained("smollm2", arguments.trn_config, dtype="bfloat16")
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..base.transformers_types import PreTrainedModel
from ..distributed import TrainingNeuronConfig
from ..errors import ConfigError
from ..options.option import SOURCE_OPTIONS

if TYPE_CHECKING:
    from transformers import PretrainedConfig

logger = logging.getLogger(__name__)

_FLASH = ("flash_attention_2", "flash_attention_3")


class NeuronModelForCausalLM:
    """Loads causal language models of transformers for `NeuronTrainer`."""

    _class_name = "AutoModelForCausalLM"

    @classmethod
    def from_pretrained(
        cls, model_id: str | Path, trn_config: TrainingNeuronConfig | None = None, **options: Any
    ) -> PreTrainedModel:
        """Load a checkpoint.

        Args:
            model_id: folder, id on the Hub, or name in `optimum_neuron.checkpoints`.
            trn_config: the layout of the run. It changes no weight: the trainer reads it from its arguments.
            **options: as transformers' `from_pretrained`. Flash attention, also as `use_flash_attention_2=True`,
                becomes "sdpa", which the device computes without a score matrix too.

        Raises:
            ConfigError: `trn_config` is not a layout.
        """
        import transformers

        from ..sources import find_folder, gguf_options, is_gguf

        _require_layout(trn_config)
        # transformers takes this too.
        shared = ("trust_remote_code",)
        where = {name: options.pop(name) for name in SOURCE_OPTIONS if name in options and name not in shared}
        folder = find_folder(model_id, **where)
        options = {**(gguf_options(folder) if is_gguf(folder) else {}), **options}
        upstream: Any = getattr(transformers, cls._class_name)
        return upstream.from_pretrained(folder, **_supported(options))

    @classmethod
    def from_config(
        cls, config: PretrainedConfig, trn_config: TrainingNeuronConfig | None = None, **options: object
    ) -> PreTrainedModel:
        """Build a model with random weights; arguments as `from_pretrained`.

        Raises:
            ConfigError: `trn_config` is not a layout.
        """
        from transformers import AutoModelForCausalLM

        _require_layout(trn_config)
        return AutoModelForCausalLM.from_config(config, **_supported(options))


class GraniteForCausalLM(NeuronModelForCausalLM):
    """Loads Granite models."""

    _class_name = "GraniteForCausalLM"


class LlamaForCausalLM(NeuronModelForCausalLM):
    """Loads Llama models."""

    _class_name = "LlamaForCausalLM"


class Qwen3ForCausalLM(NeuronModelForCausalLM):
    """Loads Qwen3 models."""

    _class_name = "Qwen3ForCausalLM"


def _require_layout(trn_config: object) -> None:
    if trn_config is not None and not isinstance(trn_config, TrainingNeuronConfig):
        message = f"trn_config is a {type(trn_config).__name__}, not a TrainingNeuronConfig."
        hint = "Pass `training_args.trn_config`, or remove the argument."
        raise ConfigError(message, hint=hint, type=type(trn_config).__name__)


def _supported(options: dict[str, Any]) -> dict[str, Any]:
    if options.pop("use_flash_attention_2", False):  # transformers' name before attn_implementation
        options = {"attn_implementation": "flash_attention_2", **options}
    if options.get("attn_implementation") not in _FLASH:
        return options
    logger.info('attn_implementation="%s" becomes "sdpa".', options["attn_implementation"])
    return {**options, "attn_implementation": "sdpa"}
