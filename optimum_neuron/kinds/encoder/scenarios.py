"""Scenarios of encoder-style models: inputs that fill each graph, and shorter ones that are padded and split."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from ...base.model_facts import facts_of
from ...base.transformers_types import PreTrainedModel
from ...engine import BATCH_AXES, Forward, RoleSignature
from ...runtime import Copies
from ..scenario import SEED, Recorder, Results, Scenario, flatten
from .configuration import NeuronEncoderConfig, Sizes
from .entry import call_options


def encoder_scenarios(
    recorder: Recorder, signature: RoleSignature, reference: PreTrainedModel, config: NeuronEncoderConfig
) -> Iterator[Scenario]:
    """Yield the scenarios of a program against the transformers model in float32."""
    forward = Forward(Copies([recorder]), "forward", signature)  # type: ignore[list-item]  # it notes its calls

    def scenario(name: str, inputs: dict[str, torch.Tensor]) -> Scenario:
        def expected() -> Results:
            results = _reference(reference, inputs, config)
            return {output: results[output] for output in signature.outputs}

        def actual() -> Results:
            results = forward(inputs)
            return {output: results[output] for output in signature.outputs}

        return Scenario(name=name, run=actual, reference=expected)

    for graph in recorder.program.graphs.values():
        sizes = signature.sizes(graph)
        inputs = random_inputs(signature, sizes)
        _end_text(signature, inputs, reference)
        yield scenario(graph.name, inputs)
    # Images with a mask are left out: their convolutions see past an edge, in transformers' own batches too.
    if axes := [axis for axis in signature.padded if axis not in ("height", "width")]:
        sizes = signature.sizes(next(iter(recorder.program.graphs.values())))
        short = {axis: max(1, size * 3 // 4) if axis in axes else size for axis, size in sizes.items()}
        short |= {axis: 1 for axis in BATCH_AXES if axis in sizes}
        inputs = random_inputs(signature, short)
        _end_text(signature, inputs, reference)
        yield scenario("padded", inputs)


def random_inputs(signature: RoleSignature, sizes: Sizes) -> dict[str, torch.Tensor]:
    """Return random inputs of some sizes, the same each time."""
    generator = torch.Generator().manual_seed(SEED)
    inputs: dict[str, torch.Tensor] = {}
    for spec in signature.inputs:
        shape = [sizes[axis] for axis in spec.axes]
        dtype = getattr(torch, spec.dtype)
        if dtype.is_floating_point:
            inputs[spec.name] = torch.randn(shape, generator=generator).to(dtype)
        elif spec.name.endswith("_mask"):
            inputs[spec.name] = torch.ones(shape, dtype=dtype)
        else:
            inputs[spec.name] = torch.randint(spec.limit or 2, shape, generator=generator, dtype=dtype)
    return inputs


def _end_text(signature: RoleSignature, inputs: dict[str, torch.Tensor], reference: PreTrainedModel) -> None:
    """End each sequence with its end token where the model reads the text there, as tokenizers do.

    CLIP reads it at the first end token, which may be padding, and an encoder-decoder at the last one, of which every
    row needs as many.
    """
    end: Any = facts_of(reference.config.get_text_config()).eos_token_id
    has_decoder = facts_of(reference.config).is_encoder_decoder and end is not None
    for spec in signature.inputs:
        if spec.name != "input_ids" or not (has_decoder or spec.padding == end):
            continue
        ids = inputs[spec.name]
        if has_decoder:
            ids[ids == end] = (end + 1) % (spec.limit or 2)
        ids[..., -1] = end


def _reference(reference: PreTrainedModel, inputs: Mapping[str, torch.Tensor], config: NeuronEncoderConfig) -> Results:
    options = call_options(reference, attentions=config.output_attentions, hidden_states=config.output_hidden_states)
    wide = {name: tensor.float() if tensor.is_floating_point() else tensor for name, tensor in inputs.items()}
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # those of the reference model are not about the compiled one
        return flatten(reference(**wide, **options))
