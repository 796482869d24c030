"""Calls of a model's methods with nested arguments, as entry points of a program, and their results.

A stock pipeline calls its models with tensors inside dictionaries and tuples, and reads results by name. `flatten`
takes the tensors out of such a value and describes the rest as plain data, a tree; `unflatten` is its inverse. A `Call`
is a method with the tree of its arguments and the shapes of its tensors, some of which have a dimension of rows. It
does not depend on diffusers or transformers; classes of results are found by their names.

    calls = Calls(copies, [Call.from_dict(row) for row in metadata["calls"]])
    result = calls("forward", {"sample": latents, "timestep": t, "return_dict": False})
"""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..base.core import TensorSpec
from ..errors import ArtifactError, ShapeError
from .rows import Batch, batches, pad_rows

if TYPE_CHECKING:
    import torch

    from ..runtime import Copies

Tree = Any
"""A nested value without its tensors, as plain data."""

_LIBRARIES = ("diffusers.", "transformers.")
"""Modules whose classes a tree may name."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Leaf:
    """A tensor of a call."""

    name: str
    """Its place, for example "added_cond_kwargs.time_ids"."""
    dtype: str
    """torch's name of the dtype that the graph has."""
    shape: tuple[int, ...]
    rows: int | None = None
    """Dimension of independent rows, which grows with the batch; None if it has none."""

    @property
    def spec(self) -> TensorSpec:
        """Shape and dtype."""
        return TensorSpec(shape=self.shape, dtype=self.dtype)

    @property
    def num_rows(self) -> int | None:
        """Compiled rows; None without such a dimension."""
        return None if self.rows is None else self.shape[self.rows]

    def fits(self, tensor: torch.Tensor) -> bool:
        """Return whether a tensor has this shape, but for its number of rows."""
        return tensor.ndim == len(self.shape) and all(
            dim == self.rows or size == expected
            for dim, (size, expected) in enumerate(zip(tensor.shape, self.shape, strict=True))
        )

    def __str__(self) -> str:
        return f"{self.name} [{', '.join('rows' if dim == self.rows else str(s) for dim, s in enumerate(self.shape))}]"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Call:
    """One way in which a model is called: an entry point of its program."""

    graph: str
    """Name of the entry point."""
    method: str
    """Method of the model, for example "forward" or "decode"."""
    arguments: Tree
    inputs: tuple[Leaf, ...]
    """Tensors of the arguments."""
    result: Tree
    outputs: tuple[Leaf, ...]
    """Tensors of the result."""

    @property
    def num_rows(self) -> int | None:
        """Compiled rows of a call; None if it has none, or inputs have different numbers of them."""
        numbers = {leaf.num_rows for leaf in (*self.inputs, *self.outputs)} - {None}
        return numbers.pop() if len(numbers) == 1 else None

    def with_rows(self, num_rows: int) -> Call:
        """Return the same call for another number of rows."""

        def resized(leaves: tuple[Leaf, ...]) -> tuple[Leaf, ...]:
            return tuple(
                dataclasses.replace(leaf, shape=(*leaf.shape[: leaf.rows], num_rows, *leaf.shape[leaf.rows + 1 :]))
                if leaf.rows is not None
                else leaf
                for leaf in leaves
            )

        return dataclasses.replace(self, inputs=resized(self.inputs), outputs=resized(self.outputs))

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Call:
        """Rebuild from plain data."""

        def leaves(rows: Any) -> tuple[Leaf, ...]:
            return tuple(Leaf(**{**row, "shape": tuple(row["shape"])}) for row in rows)

        return cls(**{**data, "inputs": leaves(data["inputs"]), "outputs": leaves(data["outputs"])})

    def to_dict(self) -> dict[str, Any]:
        """Return plain data."""
        rows = {key: [dataclasses.asdict(leaf) for leaf in getattr(self, key)] for key in ("inputs", "outputs")}
        rows = {key: [{**leaf, "shape": list(leaf["shape"])} for leaf in leaves] for key, leaves in rows.items()}
        plain = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return plain | rows


def flatten(value: object, name: str = "") -> tuple[Tree, dict[str, torch.Tensor]]:
    """Return the tree of a nested value, and its tensors by their places; floating-point numbers are tensors too.

    Objects of other kinds, such as a cache of keys and values, become None.

    Example:
        ```python
        import torch
        from optimum_neuron.engine import flatten, unflatten

        tree, tensors = flatten({"pair": (torch.ones(2), None), "scale": 0.5, "return_dict": False})
        assert list(tensors) == ["pair.0", "scale"]
        assert unflatten(tree, list(tensors.values()))["return_dict"] is False
        ```
    """
    tensors: dict[str, torch.Tensor] = {}
    return _tree(value, name, tensors), tensors


def _tree(value: Any, name: str, tensors: dict[str, torch.Tensor]) -> Tree:
    import torch

    def inside(items: Mapping[Any, Any]) -> dict[str, Tree]:
        # Sorted, because files do not keep an order.
        return {str(key): _tree(items[key], f"{name}.{key}".strip("."), tensors) for key in sorted(items)}

    if isinstance(value, float):
        value = torch.tensor(value)
    if isinstance(value, torch.Tensor):
        tensors[name or "output"] = value
        return {"tensor": len(tensors) - 1}
    if isinstance(value, (tuple, list)):
        return {"list" if isinstance(value, list) else "tuple": list(inside(dict(enumerate(value))).values())}
    if _is_output(type(value)):
        return {"output": _path(type(value)), "fields": inside(dict(value))}
    if isinstance(value, Mapping):
        return {"dict": inside(value)}
    if isinstance(getattr(value, "parameters", None), torch.Tensor):
        # A distribution, which the host samples: it is made of one tensor.
        return {"made_of": _path(type(value)), "fields": inside({"parameters": value.parameters})}
    return value if isinstance(value, (bool, int, str)) else None


def _is_output(kind: type) -> bool:
    return any(base.__name__ in ("BaseOutput", "ModelOutput") for base in kind.__mro__)


def _path(kind: type) -> str:
    return f"{kind.__module__}:{kind.__qualname__}"


def _class_of(path: str) -> Any:
    """The class of a result. An exported folder names it, so nothing else of a library may be called."""
    module, _, name = path.partition(":")
    kind = getattr(importlib.import_module(module), name, None) if module.startswith(_LIBRARIES) else None
    if not isinstance(kind, type) or not (_is_output(kind) or name.endswith("Distribution")):
        message = f"The exported folder names {path!r} as the class of a result."
        raise ArtifactError(message, hint="Export the pipeline again.", class_name=path)
    return kind


def unflatten(tree: Tree, tensors: Sequence[torch.Tensor]) -> Any:
    """Return the nested value of a tree and its tensors, in the order of `flatten`."""
    if not isinstance(tree, Mapping):
        return tree
    if "tensor" in tree:
        return tensors[tree["tensor"]]
    for kind, items in (("list", list), ("tuple", tuple)):
        if kind in tree:
            return items(unflatten(item, tensors) for item in tree[kind])
    fields = {key: unflatten(item, tensors) for key, item in tree.get("fields", tree.get("dict")).items()}
    if "dict" in tree:
        return fields
    return _class_of(tree["output"])(**fields) if "output" in tree else _class_of(tree["made_of"])(**fields)


class Calls:
    """The entry points of a program on one or several cores, as methods of the model that they were captured from."""

    def __init__(self, copies: Copies, calls: Sequence[Call]) -> None:
        self.calls = tuple(calls)
        self.copies = copies

    def __call__(self, method: str, arguments: Mapping[str, Any]) -> Any:
        """Run a method; rows are padded up to the compiled number, and split over batches and cores."""
        tree, named = flatten(dict(arguments))
        tensors = list(named.values())
        call = self._find(method, tree, named)
        import torch

        cast = [tensor.to(getattr(torch, leaf.dtype)) for leaf, tensor in zip(call.inputs, tensors, strict=True)]
        return unflatten(call.result, self._run(call, cast))

    def _find(self, method: str, tree: Tree, tensors: Mapping[str, torch.Tensor]) -> Call:
        alike = [call for call in self.calls if call.method == method and call.arguments == tree]
        for call in alike:
            if all(leaf.fits(tensor) for leaf, tensor in zip(call.inputs, tensors.values(), strict=True)):
                return call
        raise _no_entry_point(method, tensors, alike or self.calls)

    def _run(self, call: Call, tensors: list[torch.Tensor]) -> list[torch.Tensor]:
        import torch

        sizes = {
            tensor.shape[leaf.rows] for leaf, tensor in zip(call.inputs, tensors, strict=True) if leaf.rows is not None
        }
        compiled = call.num_rows
        if compiled is None or len(sizes) != 1:
            parts: list[Batch | None] = [None]
            self._require_exact(call, tensors)
        else:
            parts = list(batches(sizes.pop(), [compiled], num_replicas=len(self.copies.loaded)))
        runs = [(call.graph, [_part(leaf, t, p) for leaf, t in zip(call.inputs, tensors, strict=True)]) for p in parts]
        results = [list(result.values()) for result in self.copies.run_all(runs)]
        joined = []
        for index, leaf in enumerate(call.outputs):
            rows, pieces = leaf.rows, [result[index] for result in results]
            if rows is not None:
                pieces = [t if p is None else t.narrow(rows, 0, p.num_rows) for p, t in zip(parts, pieces, strict=True)]
            joined.append(pieces[0] if len(pieces) == 1 or rows is None else torch.cat(pieces, rows))
        return joined

    def _require_exact(self, call: Call, tensors: list[torch.Tensor]) -> None:
        """Check the rows of a call whose inputs have different numbers of them, which are neither padded nor split."""
        if any(tuple(t.shape) != leaf.shape for leaf, t in zip(call.inputs, tensors, strict=True)):
            named = {leaf.name: tensor for leaf, tensor in zip(call.inputs, tensors, strict=True)}
            raise _no_entry_point(call.method, named, [call])


def _part(leaf: Leaf, tensor: torch.Tensor, batch: Batch | None) -> torch.Tensor:
    """The rows of one run."""
    if leaf.rows is None or batch is None:
        return tensor.contiguous()
    part = tensor.narrow(leaf.rows, batch.begin, batch.num_rows)
    return pad_rows(part, batch.compiled_rows, leaf.rows).contiguous()


def _no_entry_point(method: str, tensors: Mapping[str, torch.Tensor], calls: Sequence[Call]) -> ShapeError:
    given = ", ".join(f"{name} {list(tensor.shape)}" for name, tensor in tensors.items())
    compiled = [f"{call.method}({', '.join(map(str, call.inputs))})" for call in calls]
    message = f"No entry point takes {method}({given}). Compiled are: {'; '.join(compiled)}."
    hint = "Pass arguments of these kinds and sizes, or export with yours too."
    return ShapeError(message, hint=hint, method=method, compiled=compiled)
