"""One call of a role that keeps nothing, on inputs of any size that fits: check, pad up to a bucket, split, run, cut.

Encoder-style models run like that, and so do the encoders of encoder-decoders and of vision-language models. Rows are
split over the replicas of the program too. It does not depend on transformers.

    forward = Forward(replicas, "forward", signature["forward"])
    results = forward({"input_ids": ids})
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from ..base.core import Choice
from ..compiler import Role
from ..errors import ShapeError, nearest, raise_together
from .packing import choose_bucket
from .rows import Batch, batches, pad_rows
from .signature import BATCH_AXES, REPEATED_AXES, Input, RoleSignature

if TYPE_CHECKING:
    import torch

    from ..runtime import Copies

Sizes = dict[str, int]

_FIXED = {
    "num_channels": "Convert images as the model's own processor does, for example with image.convert('RGB').",
    "feature_size": "Pass the features that the model's own feature extractor makes.",
    "num_frames": "Let the model's processor pad shorter audio; pass longer audio in parts.",
}
"""Axes that no export can change, with the hint for each."""

_SHORTEN = {"sequence_length": " (tokenizers and pipelines take truncation=True)"}


class Forward:
    """The entry points of one role of a program, on one or several cores."""

    def __init__(self, replicas: Copies, role: Role, signature: RoleSignature) -> None:
        self.signature = signature
        self._replicas = replicas
        graphs = replicas.loaded[0].program.graphs.values()
        sizes = {graph.name: signature.sizes(graph) for graph in graphs if graph.role == role}
        self.buckets = {axis: tuple(sorted({each[axis] for each in sizes.values()})) for axis in signature.axes}
        """Compiled sizes of each axis, rising."""
        self._graphs = {tuple(each[axis] for axis in self.buckets): name for name, each in sizes.items()}

    def __call__(self, inputs: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Return the results of the rows and lengths of the inputs."""
        sizes = real_sizes(self.signature, inputs)
        chosen = self._chosen(sizes)
        tensors = [_padded(spec, inputs.get(spec.name), sizes, chosen) for spec in self.signature.inputs]
        num_replicas = len(self._replicas.loaded)
        rows = [axis for axis in sizes if axis in BATCH_AXES]
        combinations = [
            dict(zip(rows, combination, strict=True))
            for combination in itertools.product(
                *(list(batches(sizes[axis], self.buckets[axis], num_replicas=num_replicas)) for axis in rows)
            )
        ]
        calls = [(self._graph(chosen, of_axis), self._part(tensors, of_axis)) for of_axis in combinations]
        results: dict[str, torch.Tensor] = {}
        for of_axis, parts in zip(combinations, self._replicas.run_all(calls), strict=True):
            for name, part in parts.items():
                self._place(results, name, part, of_axis, sizes)
        return results

    def choose_bucket(self, axis: str, size: int) -> Choice[int]:
        """Return the bucket of an axis for an input of a size, and the reason."""
        buckets, exact = self.buckets[axis], self.signature.exact
        if size not in buckets and axis in exact:
            compiled = f"compiled for {', '.join(map(str, buckets))} and does not pad this axis: {exact[axis]}"
            message = f"The input has {axis}={size}, but the model is {compiled}."
            hint = _FIXED.get(axis) or f"Resize the input, or export with {axis}={size} too."
            raise ShapeError(message, hint=hint, axis=axis, size=size, buckets=list(buckets))
        hint = f"Shorten the input{_SHORTEN.get(axis, '')}, or export with a larger {axis}."
        return choose_bucket(size, buckets, subject="The input", measure=f"{axis}={size}", hint=hint)

    def _chosen(self, sizes: Sizes) -> Sizes:
        """The bucket of every axis but those of rows; an error names all axes without one."""
        chosen: Sizes = {}
        errors: list[ShapeError] = []
        for axis, size in sizes.items():
            if axis not in BATCH_AXES:
                try:
                    chosen[axis] = self.choose_bucket(axis, size).value
                except ShapeError as error:
                    errors.append(error)
        raise_together(errors)
        return chosen

    def _graph(self, chosen: Sizes, of_axis: Mapping[str, Batch]) -> str:
        sizes = chosen | {axis: batch.compiled_rows for axis, batch in of_axis.items()}
        return self._graphs[tuple(sizes[axis] for axis in self.buckets)]

    def _part(self, tensors: list[torch.Tensor], of_axis: Mapping[str, Batch]) -> list[torch.Tensor]:
        """The rows of one call; every input begins with an axis of rows."""
        places = [of_axis[spec.axes[0]] for spec in self.signature.inputs]
        return [
            pad_rows(tensor[batch.rows], batch.compiled_rows).contiguous()
            for tensor, batch in zip(tensors, places, strict=True)
        ]

    def _place(
        self,
        results: dict[str, torch.Tensor],
        name: str,
        part: torch.Tensor,
        of_axis: Mapping[str, Batch],
        sizes: Sizes,
    ) -> None:
        """Cut padding from a part of a result, and put it where its rows belong; the only part is taken as it is."""
        axes = self.signature.outputs[name]
        real = sizes | {axis: batch.num_rows for axis, batch in of_axis.items()}
        for output in axes:
            part = part.narrow(output.dim, 0, output.size(real[output.axis]))
        rows = [output for output in axes if output.axis in of_axis]
        shape = list(part.shape)
        for output in rows:
            shape[output.dim] = sizes[output.axis]
        if list(part.shape) == shape:
            results[name] = part
            return
        index = [slice(None)] * part.ndim
        for output in rows:
            index[output.dim] = of_axis[output.axis].rows
        results.setdefault(name, part.new_empty(shape))[tuple(index)] = part


def real_sizes(signature: RoleSignature, inputs: Mapping[str, torch.Tensor]) -> Sizes:
    """Return the size of every axis, after checking the inputs against the signature and each other."""
    import torch

    known, sizes = signature.names, Sizes()
    wrong: dict[str, list[str]] = {
        name: [f"{name} is not an input of the model{nearest(name, known)}"] for name in inputs if name not in known
    }
    for spec in signature.inputs:
        tensor, problems = inputs.get(spec.name), wrong.setdefault(spec.name, [])
        if tensor is None:
            if spec.default is None:
                problems.append(f"{spec.name} is missing")
            continue
        if not isinstance(tensor, torch.Tensor):
            problems.append(f"{spec.name} is a {type(tensor).__name__}, not a tensor")
            continue
        if tensor.ndim != len(spec.axes):
            problems.append(f"{spec.name} has shape {list(tensor.shape)}, not [{', '.join(spec.axes)}]")
            continue
        problems += _value_problems(spec, tensor)
        for axis, size in zip(spec.axes, tensor.shape, strict=True):
            if sizes.setdefault(axis, size) != size:
                problems.append(f"{spec.name} has {axis}={size}, other inputs have {sizes[axis]}")
            if 0 < size < (least := signature.smallest.get(axis, 1)):
                problems.append(f"{spec.name} has {axis}={size}, but one frame needs {least}")
    every = [problem for problems in wrong.values() for problem in problems]
    if every:
        taken = ", ".join(map(_described, signature.inputs))
        message = f"The inputs do not fit the model ({'; '.join(every)}). It takes {taken}."
        hint = "Pass the inputs that the model's own tokenizer or processor makes."
        names = [name for name, problems in wrong.items() if problems]
        raise ShapeError(message, hint=hint, names=names, problems=every, inputs=list(inputs))
    return sizes


def _described(spec: Input) -> str:
    optional = "" if spec.default is None else ", optional"
    return f"{spec.name} {spec.dtype}[{', '.join(spec.axes)}]{optional}"


def _value_problems(spec: Input, tensor: torch.Tensor) -> Iterator[str]:
    import torch

    floating, is_bool = spec.dtype.startswith(("float", "bfloat")), tensor.dtype == torch.bool
    if tensor.numel() == 0:
        yield f"{spec.name} is empty: shape {list(tensor.shape)}"
    elif tensor.is_complex() or tensor.is_floating_point() != floating or (is_bool and not spec.name.endswith("_mask")):
        kind = "floating-point numbers" if floating else "integers"
        yield f"{spec.name} has dtype {str(tensor.dtype).removeprefix('torch.')}, the model takes {kind}"
    elif spec.limit is not None:
        lowest, highest = int(tensor.min()), int(tensor.max())
        if lowest < 0 or highest >= spec.limit:
            value = lowest if lowest < 0 else highest
            yield f"{spec.name} has the value {value}, the model takes 0 to {spec.limit - 1}"


def _padded(spec: Input, tensor: torch.Tensor | None, sizes: Sizes, chosen: Sizes) -> torch.Tensor:
    """A tensor in the graph's dtype, padded on every axis but those of rows."""
    import torch

    shape = [sizes[axis] for axis in spec.axes]
    if tensor is None:
        assert spec.default is not None, "an input that must be given is missing"
        tensor = torch.full(shape, spec.default)
    tensor = tensor.to(getattr(torch, spec.dtype))
    amounts: list[int] = []
    for dim in reversed(range(len(shape))):
        axis = spec.axes[dim]
        missing = chosen.get(axis, shape[dim]) - shape[dim]
        if missing and axis in REPEATED_AXES:
            tensor = pad_rows(tensor, chosen[axis], dim)
            missing = 0
        amounts += [0, missing]
    return torch.nn.functional.pad(tensor, amounts, value=spec.padding) if any(amounts) else tensor
