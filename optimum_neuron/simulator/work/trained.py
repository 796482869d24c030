"""Inputs of a training estimate: layers, parameters, and tokens per example.

Decoders are read by `reading`. Encoders of texts and of pictures in patches are built by transformers on the meta
device and read off likewise. Other models are errors: one example is not one sequence through equal layers.

    sizes = trained_sizes(AutoConfig.from_pretrained(folder), decodes=True, sequence_length=None)

A token takes 6 operations for each parameter, forward and backward (Kaplan et al. 2020), and attention 12 for each
layer and position. Adam keeps two moments in float32, and a master copy of 16-bit weights; with ZeRO-1 the copies
share both (Rajbhandari et al. 2020).

    >>> step_flops(num_parameters=10, num_layers=1, hidden=1, tokens=2, sequence_length=1)
    144
"""

from __future__ import annotations

import dataclasses
import functools

from ...base.model_facts import facts_of
from ...base.transformers_types import PreTrainedConfig, PreTrainedModel
from ...errors import ConfigError, ModelError
from .reading import decoder_sizes, largest_stack, on_meta

RECOMPUTE = 4 / 3
"""Operations of a step over those without activation checkpointing: the forward runs twice."""
DEFAULT_SEQUENCE_LENGTH = 4096
"""Tokens of an example, where the model allows more."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainedSizes:
    """A model as its training sees it."""

    kind: str
    """decoder, encoder or vision."""
    num_parameters: int
    num_multiplied: int
    """Those that every token is multiplied with: all but tables that are looked up."""
    num_layers: int
    hidden: int
    """Size of the residual stream."""
    num_heads: int
    num_logits: int
    """Values that the head makes of each token."""
    sequence_length: int
    """Tokens of an example: of a picture, its patches."""
    is_mixture: bool = False


def trained_sizes(
    config: PreTrainedConfig, *, decodes: bool, sequence_length: int | None, trust_remote_code: bool = False
) -> TrainedSizes:
    """Read the sizes of an encoder or, as `decodes` says, of a causal language model, which may be a part of a model.

    Without a length an example has the model's own, at most 4096 tokens. Pictures have their patches.
    """
    if decodes:
        sizes = decoder_sizes(config, trust_remote_code=trust_remote_code)
        return TrainedSizes(
            kind="decoder",
            num_parameters=sizes.num_parameters,
            num_multiplied=sizes.num_parameters - sizes.hidden * sizes.vocab,
            num_layers=sizes.num_layers,
            hidden=sizes.hidden,
            num_heads=sizes.num_heads,
            num_logits=sizes.vocab,
            sequence_length=sequence_length or _usual_length(sizes.max_positions),
            is_mixture=sizes.kind == "mixture",
        )
    patches = _num_patches(config)
    if patches is not None and sequence_length is not None:
        message = f"sequence_length={sequence_length} has no effect: an example is an image of {patches} patches."
        raise ConfigError(message, hint="Remove it.", option="sequence_length", value=sequence_length, patches=patches)
    return _encoder_sizes(config, patches, sequence_length, trust_remote_code=trust_remote_code)


def _num_patches(config: PreTrainedConfig) -> int | None:
    image, patch = facts_of(config).image_size, facts_of(config).patch_size
    if not isinstance(image, int) or not isinstance(patch, int):
        return None
    return (image // patch) ** 2 + 1


def _encoder_sizes(
    config: PreTrainedConfig, patches: int | None, sequence_length: int | None, *, trust_remote_code: bool
) -> TrainedSizes:
    import transformers
    from torch import nn

    build = functools.partial(transformers.AutoModel.from_config, config, trust_remote_code=trust_remote_code)
    if own_class := getattr(transformers, (config.architectures or ("",))[0], None):
        build = functools.partial(own_class, config)
    model = on_meta(config.model_type, [build])
    dimensions = [getattr(config, name, None) for name in ("num_hidden_layers", "hidden_size", "num_attention_heads")]
    stack = largest_stack(model, dimensions[0])
    reads = model.main_input_name == ("input_ids" if patches is None else "pixel_values")
    encodes = not facts_of(config).is_encoder_decoder and all(isinstance(size, int) for size in dimensions)
    if not (reads and encodes and stack is not None):
        message = f"A {config.model_type} is neither a decoder nor an encoder of equal layers."
        hint = "Estimate it for inference: optimum-cli neuron estimate."
        raise ModelError(message, hint=hint, model_type=config.model_type)
    num_layers, hidden, heads = (int(x) for x in dimensions if x is not None)
    tables = sum(m.weight.numel() for m in model.modules() if isinstance(m, nn.Embedding))
    num_parameters = sum(p.numel() for p in model.parameters())
    masked = any(name.endswith("ForMaskedLM") for name in config.architectures or ())
    return TrainedSizes(
        kind="encoder" if patches is None else "vision",
        num_parameters=num_parameters,
        num_multiplied=num_parameters - tables + (hidden * config.vocab_size if masked and _is_tied(model) else 0),
        num_layers=num_layers,
        hidden=hidden,
        num_heads=heads,
        num_logits=config.vocab_size if masked else config.num_labels,
        sequence_length=patches or sequence_length or _usual_length(facts_of(config).max_position_embeddings),
    )


def _usual_length(max_positions: int | None) -> int:
    return min(max_positions or DEFAULT_SEQUENCE_LENGTH, DEFAULT_SEQUENCE_LENGTH)


def _is_tied(model: PreTrainedModel) -> bool:
    """Return whether the head is the table of the embedding, so that it is multiplied with too."""
    head, table = model.get_output_embeddings(), model.get_input_embeddings()
    return head is not None and head.weight is table.weight


def step_flops(*, num_parameters: int, num_layers: int, hidden: int, tokens: int, sequence_length: int) -> int:
    """Operations of forward and backward over `tokens`, in sequences of `sequence_length`."""
    return tokens * (6 * num_parameters + 12 * num_layers * hidden * sequence_length)


def activation_bytes(*, tokens: int, hidden: int, num_layers: int, tensor_parallel: int, checkpointing: bool) -> int:
    """16-bit activations that the backward needs, of one microbatch on one core.

    34 bytes for each token and value of a layer without attention scores, which the fused kernel does not keep; with
    checkpointing two for each layer and 34 for the one at work (Korthikanti et al. 2022, section 4, with sequence
    parallelism).
    """
    each = tokens * hidden // tensor_parallel
    return each * (2 * num_layers + 34) if checkpointing else each * 34 * num_layers
