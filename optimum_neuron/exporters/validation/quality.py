"""Quality of a quantized model: its reference with the same rounded weights, and its distance from the original.

Validation compares a quantized model with the reference model whose weights are quantized and dequantized in float32,
so it finds defects; those weights are compared first with the ones that another library reads (`references.py`). What
rounding itself costs is measured on a short English text, if the checkpoint has a tokenizer.

    quality = measure_quality(prepared.source.folder, recorder, signature, reference)
    reference = with_quantized_weights(reference, prepared.weight_sources, tensors, shards, reader)
"""

from __future__ import annotations

import copy
import dataclasses
import functools
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...base.core import Choice
from ...base.transformers_types import PreTrainedModel
from ...weights import ZEROS, QuantizedSource, Shard, Shards, TensorSource, dequantize, quantize_rows, recipe_of
from .weights import require_same_weights, weight_error

if TYPE_CHECKING:
    import torch

    from ...engine import Signature
    from ...kinds import Recorder

_TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "tokenizer.model", "vocab.json")
"""Each checkpoint with a tokenizer has one of them."""
TEXT = (
    "When on board H.M.S. Beagle, as naturalist, I was much struck with certain facts in the distribution of the "
    "inhabitants of South America, and in the geological relations of the present to the past inhabitants of that "
    "continent. These facts seemed to me to throw some light on the origin of species, that mystery of mysteries, as "
    "it has been called by one of our greatest philosophers. On my return home, it occurred to me, in 1837, that "
    "something might perhaps be made out on this question by patiently accumulating and reflecting on all sorts of "
    "facts which could possibly have any bearing on it. After five years' work I allowed myself to speculate on the "
    "subject, and drew up some short notes; these I enlarged in 1844 into a sketch of the conclusions, which then "
    "seemed to me probable: from that period to the present day I have steadily pursued the same object."
)
"""Charles Darwin, On the Origin of Species, 1859, the beginning of the introduction."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Quality:
    """Distance of a compiled model from the unquantized model in float32, on a text."""

    num_tokens: int
    """Tokens that are predicted."""
    top1_agreement: float
    """Share of them for which both models find the same token most likely."""
    perplexity: float
    """Perplexity of the compiled model."""
    reference_perplexity: float

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return dataclasses.asdict(self)


def measure_quality(
    folder: Path, recorder: Recorder, signature: Signature, reference: PreTrainedModel
) -> Quality | None:
    """Compare a compiled decoder with the original on `TEXT`, as much of it as a prompt may have.

    Args:
        folder: the checkpoint, for its tokenizer; without one there is no comparison.
    """
    import torch

    from ...engine import make_decoder, make_sequences, plan_packing, reads_features
    from ...kinds import cache_dtype

    ids = token_ids(folder, TEXT)
    if ids is None or reads_features(signature["score"].names):
        return None
    decoder, sequences = make_decoder(recorder, signature), make_sequences(recorder, signature)  # type: ignore[arg-type]
    sequences.resize(1)
    ids = ids[:, : decoder.prefill_buckets[-1]]
    with torch.no_grad():
        expected = reference(ids).logits.float()
    # Behind the first token, if the cache is in 8 bits: the tokens of a prompt see each other before that.
    first = ids.shape[1] if cache_dtype(recorder.program) is None else 1
    mask = torch.ones_like(ids)
    parts = [decoder(ids[:, :first], plan_packing(mask[:, :first], 0), sequences, num_past=0)]
    if first < ids.shape[1]:
        parts.append(decoder(ids[:, first:], plan_packing(mask, first), sequences, num_past=first))
    actual = torch.cat(parts, 1)
    return Quality(
        num_tokens=ids.shape[1] - 1,
        top1_agreement=(actual.argmax(-1) == expected.argmax(-1)).double().mean().item(),
        perplexity=_perplexity(actual.float(), ids),
        reference_perplexity=_perplexity(expected, ids),
    )


def with_quantized_weights(
    reference: PreTrainedModel,
    sources: Mapping[str, tuple[str, ...]],
    tensors: TensorSource,
    shards: Shards,
    reader: Choice[str],
) -> Any:
    """Return the reference model with the weights of a program, dequantized in float32.

    They must be its own weights, up to what rounding explains. Its linear layers round what they multiply, if the
    program's do.

    Args:
        reference: the transformers model; it is not changed.
        sources: tensors of each weight of the program.
        shards: weights that are divided among cores, each of which rounds its inputs by their own largest one.
        reader: the library that read the weights of the reference model.
    """
    import torch

    recipes = [recipe for names in sources.values() for name in names if (recipe := recipe_of(name))]
    rounded = {recipe.tensor: recipe for recipe in recipes}
    if not rounded:
        return reference
    reference = copy.deepcopy(reference)
    parameters = dict(reference.named_parameters(remove_duplicate=False))
    errors = {}
    with torch.no_grad():
        for name, recipe in rounded.items():
            own = {part: dataclasses.replace(recipe, part=part).name for part in recipe.scheme.parts}
            parts = {part: tensors.join([stored])[0] for part, stored in own.items()}
            plain = dequantize(parts["values"], parts["scale"], parts.get("zero"))
            weight = parameters[name].transpose(-1, -2) if recipe.is_transposed else parameters[name]
            is_stored = isinstance(tensors, QuantizedSource) and tensors.is_stored(own["values"])
            errors[name] = weight_error(weight, plain, recipe.scheme, parts["scale"], is_stored=is_stored)
            weight.copy_(plain)
    require_same_weights(errors, reader)
    for weight, names in sources.items():
        for recipe in filter(None, map(recipe_of, names)):
            if recipe.scheme.is_dynamic and recipe.part == "values":
                split = shards.of_weights.get(weight)
                groups = _input_groups(split, recipe.shape_of(parameters[recipe.tensor].shape)[1])
                round_inputs = functools.partial(_round_inputs, getattr(torch, recipe.scheme.dtype), groups)
                layer = reference.get_submodule(recipe.tensor.removesuffix(".weight"))
                layer.register_forward_pre_hook(round_inputs)
    return reference


def _input_groups(shard: Shard | None, num_inputs: int) -> list[list[int]]:
    """Inputs of a linear layer that are rounded together: all of them, or those of each core."""
    if shard is None or shard.dim == 0:
        return [list(range(num_inputs))]
    parts = shard.splits[0].parts
    return [
        [index for start, length in own if start != ZEROS for index in range(start, start + length)] for own in parts
    ]


def _round_inputs(dtype: torch.dtype, groups: list[list[int]], _layer: object, inputs: tuple[torch.Tensor, ...]) -> Any:
    x = inputs[0].clone()
    for group in groups:
        numbers, scale = quantize_rows(inputs[0][..., group], dtype)
        x[..., group] = (numbers.float() * scale).to(x.dtype)
    return (x, *inputs[1:])


def token_ids(folder: Path, text: str) -> torch.Tensor | None:
    """Return the tokens of a text, shape [1, tokens], or None if a checkpoint has no tokenizer."""
    import torch
    from transformers import AutoTokenizer

    if not any((folder / name).is_file() for name in _TOKENIZER_FILES):
        return None
    return torch.tensor([AutoTokenizer.from_pretrained(folder)(text)["input_ids"]])


def _perplexity(logits: torch.Tensor, ids: torch.Tensor) -> float:
    from torch.nn.functional import cross_entropy

    return cross_entropy(logits[0, :-1], ids[0, 1:]).exp().item()
