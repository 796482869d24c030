"""Compare a compiled model of one forward with the original in float32, graph by graph and result by result.

Two things are compared: the graph with the original on tensors that fill it, and, where inputs are padded, what a
padded row gives with what the original gives for the row alone.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from typing import Any

import torch

from ...runtime.copies import Copies
from ...runtime.loaded import LoadedProgram
from ..validate import SEED, OutputError, compare, default_tolerance, require_agreement
from .batches import run_batch
from .configuration import BATCH_AXES, NeuronEncoderConfig, Sizes
from .entry import MODEL, call_options, flatten, with_attentions
from .signature import Input, Signature

Tensors = Mapping[str, torch.Tensor]


def validate_encoder(
    loaded: LoadedProgram,
    reference: Any,
    signature: Signature,
    config: NeuronEncoderConfig,
    *,
    atol: float | None = None,
) -> list[OutputError]:
    """Run random inputs through every graph and the original.

    Args:
        loaded: the compiled program with the original's weights.
        reference: the transformers model in float32.
        signature: what the model takes and returns.
        config: complete configuration.
        atol: absolute tolerance; None derives it from the arithmetic.

    Raises:
        ValidationError: a result is past its tolerance; statistics and the first diverging module are in it.
    """
    reference = with_attentions(reference) if config.output_attentions else reference
    errors, inputs = [], dict[str, torch.Tensor]()
    for name, sizes in config.graphs().items():
        inputs = dummy_inputs(signature, sizes, shorter=False)
        given = [inputs[spec.name] for spec in signature.inputs]
        errors += _compared(name, loaded.run(name, given), _original(reference, inputs, config), config, atol)
    errors += _padding_errors(loaded, reference, signature, config, atol)
    return require_agreement(
        errors, lambda failed: _first_diverging(loaded, reference, signature, inputs, config, name)
    )


def dummy_inputs(signature: Signature, sizes: Sizes, *, shorter: bool = True) -> dict[str, torch.Tensor]:
    """Random inputs of some sizes, the same each time; the last row ends in padding where the model takes a mask."""
    generator = torch.Generator().manual_seed(SEED)
    found: dict[str, torch.Tensor] = {}
    for spec in signature.inputs:
        shape = [sizes[axis] for axis in spec.axes]
        dtype = getattr(torch, spec.dtype)
        if dtype.is_floating_point:
            found[spec.name] = torch.randn(shape, generator=generator).to(dtype)
        elif spec.name.endswith("_mask"):
            found[spec.name] = torch.ones(shape, dtype=dtype)
        else:
            found[spec.name] = torch.randint(spec.limit or 2, shape, generator=generator, dtype=dtype)
    if shorter:
        _pad_last_row(signature, found)
    return found


def _pad_last_row(signature: Signature, inputs: dict[str, torch.Tensor]) -> None:
    for spec in signature.inputs:
        dims = [dim for dim, axis in enumerate(spec.axes) if axis in signature.padded and axis != "num_choices"]
        if dims:
            size = inputs[spec.name].shape[dims[-1]]
            inputs[spec.name][-1].narrow(dims[-1] - 1, size - size // 4, size // 4).fill_(_filler(spec))


def _end_text(signature: Signature, inputs: dict[str, torch.Tensor], reference: Any) -> None:
    """End each row with its end token where padding is the same token: CLIP reads the text at the first of them, so
    a row without one, which no tokenizer makes, is read in the padding.
    """
    end = getattr(reference.config.get_text_config(), "eos_token_id", None)
    for spec in signature.inputs:
        if spec.name == "input_ids" and spec.padding == end:
            inputs[spec.name][..., -1] = end


def _filler(spec: Input) -> int | float:
    return 0 if spec.name.endswith("_mask") else spec.padding


def _original(reference: Any, inputs: Tensors, config: NeuronEncoderConfig) -> dict[str, torch.Tensor]:
    options = call_options(reference, attentions=config.output_attentions, hidden_states=config.output_hidden_states)
    wide = {name: tensor.float() if tensor.is_floating_point() else tensor for name, tensor in inputs.items()}
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the original's own are not about the compiled model
        return flatten(reference(**wide, **options))


def _compared(
    name: str, found: Tensors, original: Tensors, config: NeuronEncoderConfig, atol: float | None
) -> list[OutputError]:
    errors = []
    for output, tensor in found.items():
        wanted = original[output].float()
        tolerance = default_tolerance(config, wanted.abs().max().item()) if atol is None else atol
        errors.append(compare(f"{name}.{output}", tensor.float(), wanted, tolerance=tolerance))
    return errors


def _padding_errors(
    loaded: LoadedProgram, reference: Any, signature: Signature, config: NeuronEncoderConfig, atol: float | None
) -> list[OutputError]:
    """A shorter row, padded by us, against the original without padding. Images with a mask are left out: their
    convolutions see past an edge, in transformers' own batches too.
    """
    axes = [axis for axis in signature.padded if axis not in ("height", "width")]
    if not axes:
        return []
    sizes = next(iter(config.graphs().values()))
    short = {axis: max(1, size * 3 // 4) if axis in axes else size for axis, size in sizes.items()}
    short |= {axis: 1 for axis in BATCH_AXES if axis in sizes}
    inputs = dummy_inputs(signature, short, shorter=False)
    _end_text(signature, inputs, reference)
    found = run_batch(Copies([loaded]), signature, config, inputs)
    return _compared("padded", found, _original(reference, inputs, config), config, atol)


def _first_diverging(
    loaded: LoadedProgram,
    reference: Any,
    signature: Signature,
    inputs: Tensors,
    config: NeuronEncoderConfig,
    graph: str,
) -> str:
    """Compare what each outlined module returns with what the original's returns; name the first that loses 20 dB."""
    trace = loaded.executor.trace(graph, [inputs[spec.name] for spec in signature.inputs])
    wanted: dict[str, torch.Tensor] = {}
    handles = []
    modules = dict(reference.named_modules())
    for path, _ in trace:
        module = modules.get(path.removeprefix(f"{MODEL}."))
        if module is not None:
            handles.append(module.register_forward_hook(_keep(wanted, path)))
    try:
        _original(reference, inputs, config)
    finally:
        for handle in handles:
            handle.remove()
    previous = math.inf
    for path, results in trace:
        same = [tensor for tensor in results if path in wanted and tensor.shape == wanted[path].shape]
        if not same:
            continue
        error = compare(path, same[0].float(), wanted[path].float(), tolerance=0.0)
        if math.isnan(error.max_abs_error) or error.sqnr_db < min(previous - 20.0, 20.0):
            return f"the first diverging module is {path} (SQNR {error.sqnr_db:.1f} dB, before it {previous:.1f} dB)"
        previous = error.sqnr_db
    return (
        "every compared module agrees to 20 dB or drifts slowly: what is before or after them diverges, or all add up"
    )


def _keep(wanted: dict[str, torch.Tensor], path: str) -> Any:
    def hook(_module: Any, _arguments: Any, output: Any) -> None:
        first = output[0] if isinstance(output, (tuple, list)) else output
        if isinstance(first, torch.Tensor):
            wanted[path] = first

    return hook
