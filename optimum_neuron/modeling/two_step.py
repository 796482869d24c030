"""Export decoders in two steps, as scripts for Optimum Neuron do: first a configuration, then a model.

    config = NeuronModelForCausalLM.get_neuron_config("smollm2", batch_size=1, sequence_length=512)
    NeuronModelForCausalLM.export("smollm2", config).save_pretrained("smollm2_neuron")

`from_pretrained(export=True)` in `loading.py` does both at once.
"""

from __future__ import annotations

import dataclasses
import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from ..base.core import Choice
from ..base.model_facts import facts_of
from ..base.transformers_types import PreTrainedConfig
from ..errors import ConfigError
from ..exporters import neuron_config, translate
from ..hardware import legal_core_counts, resolve_instance
from ..options.configuration import DEGREES, CompileConfig, NeuronConfig
from ..runtime import num_usable
from ..sources import load_source
from .loading import NeuronModel

logger = logging.getLogger(__name__)

LONG_SEQUENCE = 1024
"""Tokens of a sequence above which prompts are read in chunks of so many."""
_WHOLE_PROMPTS = ("gemma3", "gemma3_text")
"""Architectures whose prompts are in one piece in Optimum Neuron."""


class TwoStepExport(NeuronModel):
    """Adds `get_neuron_config` and `export` to a class of decoders."""

    @classmethod
    def get_neuron_config(
        cls,
        model_name_or_path: str | Path,
        config: PreTrainedConfig | None = None,
        token: str | bool | None = None,
        revision: str | None = None,
        instance_type: str | None = None,
        batch_size: int | None = None,
        sequence_length: int | None = None,
        tensor_parallel_size: int | None = None,
        **options: object,
    ) -> CompileConfig:
        """Return the complete configuration that an export would use; no weights are downloaded.

        Args:
            model_name_or_path: folder, Hub model ID, or name in `optimum_neuron.checkpoints`.
            config: transformers configuration to use instead of the checkpoint's.
            token: Hub token.
            revision: branch, tag, or commit on the Hub.
            instance_type: the instance to compile for.
            batch_size: sequences of every graph.
            sequence_length: tokens of a sequence, prompt and answer together.
            tensor_parallel_size: cores that share every layer; None for every core of the instance that this process
                may use, as in Optimum Neuron. The reason is logged.
            **options: further fields of the configuration. `prefill_chunk_size` is 1,024 for longer sequences, as in
                Optimum Neuron; the reason is logged.
        """
        source = load_source(model_name_or_path, token=token, revision=revision, with_weights=False)
        source = dataclasses.replace(source, config=config or source.config)
        named = {
            "instance_type": instance_type,
            "batch_size": batch_size,
            "sequence_length": sequence_length,
            "tensor_parallel_size": tensor_parallel_size,
        }
        named = {name: value for name, value in named.items() if value is not None}
        request = {name: value for name, value in translate({**named, **options}).items() if value is not None}
        if request.keys().isdisjoint(DEGREES):
            cores = _most_cores(instance_type, source.config)
            logger.info("tensor_parallel_size: %s", cores)
            request["tensor_parallel_size"] = cores.value
        request["task"] = cls._task(request)
        complete: CompileConfig = neuron_config(source, request)[0]
        if (chunk := _chunk_size(request, complete, source.config.model_type)) is not None:
            logger.info("prefill_chunk_size: %s", chunk)
            complete = neuron_config(source, {**request, "prefill_chunk_size": chunk.value})[0]
        return complete

    @classmethod
    def export(
        cls,
        model_id: str | Path,
        neuron_config: CompileConfig,
        config: PreTrainedConfig | None = None,
        token: str | bool | None = None,
        revision: str | None = None,
        load_weights: bool = True,
        **options: object,
    ) -> Self:
        """Compile a checkpoint with a configuration from `get_neuron_config`.

        Args:
            model_id: as in `get_neuron_config`.
            neuron_config: shapes, arithmetic, and target.
            config: transformers configuration to use instead of the checkpoint's.
            token: Hub token.
            revision: branch, tag, or commit on the Hub.
            load_weights: accepted for compatibility: weights are memory-mapped, so False would save nothing.
            **options: as in `from_pretrained`.
        """
        kind = type(neuron_config).__name__
        if not isinstance(neuron_config, CompileConfig):
            raise ConfigError(f"neuron_config is a {kind}.", hint="Pass the result of `get_neuron_config`.", type=kind)
        return cls.from_pretrained(
            model_id, config, export=True, token=token, revision=revision, neuron_config=neuron_config, **options
        )


def _chunk_size(request: Mapping[str, Any], complete: Any, model_type: str) -> Choice[int] | None:
    """Return the tokens of a prompt to read at once by Optimum Neuron's rule; None: the configuration is complete."""
    decided = ("prefill_chunk_size", "prefill_buckets", "continuous_batching", "speculation")
    has_chunks = type(complete) is NeuronConfig and not complete.open_sizes  # not with images or audio
    if not has_chunks or any(request.get(name) is not None for name in decided) or model_type in _WHOLE_PROMPTS:
        return None
    length = complete.sequence_length
    if length <= LONG_SEQUENCE:
        return None
    return Choice(value=LONG_SEQUENCE, reason=f"default for sequence_length={length}, which is above {LONG_SEQUENCE}")


def _most_cores(instance_type: str | None, config: PreTrainedConfig) -> Choice[int]:
    """Return the most cores that the instance, the environment, and the attention heads of the model allow."""
    instance = resolve_instance(instance_type).value
    usable, legal = num_usable(instance, os.environ), legal_core_counts(instance)
    num_heads = facts_of(config.get_text_config(decoder=True)).num_attention_heads or usable
    most = max((count for count in legal.counts if count <= min(usable, num_heads)), default=1)
    reason = f"default: all {usable} cores of {instance.name} that this process may use"
    if most < usable:
        reason += f", down to {num_heads} attention heads and {legal.rule}"
    return Choice(value=most, reason=reason)
