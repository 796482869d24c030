"""Run any inputs that fit through graphs of fixed shapes: check, pad up to a bucket, split rows, run, cut back.

Rows are split over the copies of the program too, where there are several. It knows the signature of the model and
nothing of transformers.

    results = run_batch(copies, signature, config, {"input_ids": ids})
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping

import torch

from ...buckets.choose import choose_bucket
from ...core import Choice
from ...errors import ShapeError, nearest, refusal
from ...runtime.copies import Copies
from .configuration import BATCH_AXES, NeuronEncoderConfig, Sizes
from .signature import Input, OutputAxis, Signature

_REPEATED = (*BATCH_AXES, "num_choices")
"""Axes of independent rows: padding repeats the first, so that it is a valid one."""


_FIXED = {
    "num_channels": "convert images as the model's own processor does, for example with image.convert('RGB')",
    "feature_size": "pass what the model's own feature extractor makes",
}
"""Axes that no export can change: what to do instead."""

_SHORTEN = {"sequence_length": " (tokenizers and pipelines take truncation=True)"}


def choose_size(axis: str, size: int, buckets: tuple[int, ...], signature: Signature) -> Choice[int]:
    """Say which bucket of an axis holds an input, and why.

    Raises:
        ShapeError: none does.
    """
    if size not in buckets and axis in signature.exact:
        raise ShapeError(
            refusal(
                asked=f"an input with {axis}={size}",
                found=f"compiled for {', '.join(map(str, buckets))}, and not padded",
                why=signature.exact[axis],
                do=_FIXED.get(axis) or f"resize the input, or export with {axis}={size} too",
            )
        )
    return choose_bucket(
        size,
        buckets,
        measure=f"{axis}={size}",
        asked=f"an input with {axis}={size}",
        do=f"shorten the input{_SHORTEN.get(axis, '')}, or export with a larger {axis}",
    )


def run_batch(
    copies: Copies, signature: Signature, config: NeuronEncoderConfig, inputs: Mapping[str, torch.Tensor]
) -> dict[str, torch.Tensor]:
    """Return the results of the rows and lengths that were given.

    Raises:
        ShapeError: an input does not fit what was compiled; all problems are named.
    """
    sizes = real_sizes(signature, inputs)
    buckets = _chosen(sizes, signature, config)
    tensors = [_padded(tensor, inputs.get(tensor.name), sizes, buckets) for tensor in signature.inputs]
    num_copies = len(copies.loaded)
    groups = [
        [(axis, begin, num, bucket) for begin, num, bucket in _groups(size, config.buckets(axis), num_copies)]
        for axis, size in sizes.items()
        if axis in BATCH_AXES
    ]
    combinations = list(itertools.product(*groups))
    calls = []
    for combination in combinations:
        rows, shape = _slices(combination), buckets | {axis: bucket for axis, _, _, bucket in combination}
        given = [_rows(tensor, spec, rows, shape) for spec, tensor in zip(signature.inputs, tensors, strict=True)]
        calls.append((config.graph_name(shape), given))
    results: dict[str, torch.Tensor] = {}
    for combination, found in zip(combinations, copies.run_all(calls), strict=True):
        real = sizes | {axis: num for axis, _, num, _ in combination}
        for name, tensor in found.items():
            axes = signature.outputs[name]
            _place(results, name, _cut(tensor, axes, real), axes, _slices(combination), sizes)
    return results


def _chosen(sizes: Sizes, signature: Signature, config: NeuronEncoderConfig) -> Sizes:
    """The bucket of every axis but those of rows.

    Raises:
        ShapeError: an axis has none; all such axes are named.
    """
    found: Sizes = {}
    problems: list[str] = []
    for axis, size in sizes.items():
        if axis not in BATCH_AXES:
            try:
                found[axis] = choose_size(axis, size, config.buckets(axis), signature).value
            except ShapeError as error:
                problems.append(str(error))
    if problems:
        raise ShapeError("\n".join(problems))
    return found


def real_sizes(signature: Signature, inputs: Mapping[str, torch.Tensor]) -> Sizes:
    """Size of every axis, after checking the inputs against the signature and each other.

    Raises:
        ShapeError: an input is unknown, missing, of another rank, kind or size, or empty; all problems are named.
    """
    problems, sizes = list(_unknown(signature, inputs)), dict[str, int]()
    for spec in signature.inputs:
        tensor = inputs.get(spec.name)
        if tensor is None:
            if spec.default is None:
                problems.append(f"{spec.name} is missing")
            continue
        if not isinstance(tensor, torch.Tensor):
            problems.append(f"{spec.name} is a {type(tensor).__name__}, the model takes tensors")
            continue
        if tensor.ndim != len(spec.axes):
            problems.append(f"{spec.name} has shape {list(tensor.shape)}, the model takes [{', '.join(spec.axes)}]")
            continue
        problems += _value_problems(spec, tensor)
        for axis, size in zip(spec.axes, tensor.shape, strict=True):
            if sizes.setdefault(axis, size) != size:
                problems.append(f"{spec.name} has {axis}={size}, other inputs have {sizes[axis]}")
            if 0 < size < (least := signature.smallest.get(axis, 1)):
                problems.append(f"{spec.name} has {axis}={size}, and a frame is made of {least}")
    if problems:
        raise ShapeError(
            refusal(
                asked=f"running the model with {', '.join(inputs) or 'nothing'}",
                found="; ".join(problems),
                why=f"it takes {', '.join(_described(spec) for spec in signature.inputs)}",
                do="pass what the model's own tokenizer or processor makes",
            )
        )
    return sizes


def _unknown(signature: Signature, inputs: Mapping[str, torch.Tensor]) -> Iterator[str]:
    known = [spec.name for spec in signature.inputs]
    for name in inputs:
        if name not in known:
            yield f"{name} is no input of the compiled graph{nearest(name, known)}"


def _described(spec: Input) -> str:
    optional = "" if spec.default is None else ", optional"
    return f"{spec.name} {spec.dtype}[{', '.join(spec.axes)}]{optional}"


def _value_problems(spec: Input, tensor: torch.Tensor) -> Iterator[str]:
    floating, is_bool = spec.dtype.startswith(("float", "bfloat")), tensor.dtype == torch.bool
    if tensor.numel() == 0:
        yield f"{spec.name} is empty: shape {list(tensor.shape)}"
    elif tensor.is_complex() or tensor.is_floating_point() != floating or (is_bool and not spec.name.endswith("_mask")):
        wanted = "floating-point numbers" if floating else "whole numbers"
        yield f"{spec.name} has {str(tensor.dtype).removeprefix('torch.')}, the model takes {wanted}"
    elif spec.limit is not None:
        lowest, highest = int(tensor.min()), int(tensor.max())
        if lowest < 0 or highest >= spec.limit:
            wrong = lowest if lowest < 0 else highest
            yield f"{spec.name} has {wrong}, the model has 0 to {spec.limit - 1}"


def _padded(spec: Input, tensor: torch.Tensor | None, sizes: Sizes, buckets: Sizes) -> torch.Tensor:
    """A tensor in the graph's dtype, filled up on every axis but those of rows."""
    shape = [sizes[axis] for axis in spec.axes]
    if tensor is None:
        tensor = torch.full(shape, spec.default or 0)
    tensor = tensor.to(getattr(torch, spec.dtype))
    amounts: list[int] = []
    for dim in reversed(range(len(shape))):
        axis = spec.axes[dim]
        missing = buckets.get(axis, shape[dim]) - shape[dim]
        if missing and axis in _REPEATED:
            tensor = _repeated(tensor, dim, missing)
            missing = 0
        amounts += [0, missing]
    return torch.nn.functional.pad(tensor, amounts, value=spec.padding) if any(amounts) else tensor


def _repeated(tensor: torch.Tensor, dim: int, num: int) -> torch.Tensor:
    first = tensor.narrow(dim, 0, 1)
    return torch.cat([tensor, first.expand(*(num if d == dim else -1 for d in range(tensor.ndim)))], dim)


def _groups(num_rows: int, buckets: tuple[int, ...], num_copies: int) -> Iterator[tuple[int, int, int]]:
    """Begin, number and compiled number of the rows of each call, of which each copy gets as many."""
    share = math.ceil(num_rows / num_copies)
    most = next((bucket for bucket in buckets if share <= bucket), buckets[-1])
    for begin in range(0, num_rows, most):
        num = min(most, num_rows - begin)
        yield begin, num, next(bucket for bucket in buckets if num <= bucket)


def _slices(combination: tuple[tuple[str, int, int, int], ...]) -> dict[str, slice]:
    return {axis: slice(begin, begin + num) for axis, begin, num, _ in combination}


def _rows(tensor: torch.Tensor, spec: Input, rows: Mapping[str, slice], shape: Sizes) -> torch.Tensor:
    dim = 0
    part = tensor[rows[spec.axes[dim]]]
    missing = shape[spec.axes[dim]] - part.shape[dim]
    return (_repeated(part, dim, missing) if missing else part).contiguous()


def _cut(tensor: torch.Tensor, axes: tuple[OutputAxis, ...], real: Sizes) -> torch.Tensor:
    for axis in axes:
        tensor = tensor.narrow(axis.dim, 0, axis.size(real[axis.axis]))
    return tensor


def _place(
    results: dict[str, torch.Tensor],
    name: str,
    part: torch.Tensor,
    axes: tuple[OutputAxis, ...],
    rows: Mapping[str, slice],
    sizes: Sizes,
) -> None:
    """Put a part of a result where its rows belong; a part that is the whole is taken as it is."""
    batches = [axis for axis in axes if axis.axis in rows]
    whole = [sizes[axis.axis] for axis in batches]
    if [part.shape[axis.dim] for axis in batches] == whole:
        results[name] = part
        return
    if name not in results:
        shape = list(part.shape)
        for axis, size in zip(batches, whole, strict=True):
            shape[axis.dim] = size
        results[name] = part.new_empty(shape)
    at = [slice(None)] * part.ndim
    for axis in batches:
        at[axis.dim] = rows[axis.axis]
    results[name][tuple(at)] = part
