"""The work of a decoder's graph as the serving stacks of published measurements do it.

The constants of decoders are fitted on measurements of those stacks, so they hold for work that is counted likewise.
Their programs do less than the graphs of this package say operator by operator, or lay weights out differently. What
they do is a fixed list of changes, each of which is one function here:

    fused norms           three passes over what is normalized, however it is written
    fused attention       queries, keys, and values take two passes: they leave PSUM, and are rotated, scaled, or
                          written to the cache; scores and results stay in the kernel
    fused activations     the activation is computed as results leave PSUM; a gate adds the product, half of both
    sums from PSUM        results that are summed over cores or into the residual stream take no pass of their own
    one matmul each       queries, keys, and values of one input are one matrix
    gate and up apart     two matrices for DMA, also where they are stored as one
    16-bit head           logits and routing are computed from 16-bit weights at the 16-bit rate
    experts one by one    each expert is a matrix; its share of a token and the sum over experts are two passes where
                          all experts see a prompt
    tables ahead          masks and tables of positions are constants: no passes, no weights

It does not depend on targets or time. `decoder.py` counts the same from sizes alone; tests compare both in every field.

    as_published(work_of_program(program, "decode_4096")).total
"""

from __future__ import annotations

import collections
import dataclasses
import functools
from collections.abc import Sequence

from ...compiler import contiguous_bytes, product_cycles
from .decoder import ACTIVATION_BYTES, NORM_PASSES, passes_of
from .published_mixers import absorbed_latents, fused_attention, scanned_states
from .record import GraphWork, Matmul, Step
from .roles import (
    JOINED_ROLES,
    Role,
    counting,
    is_joined,
    layer_of,
    norm_paths,
    parent_of,
    role_of_step,
    with_work,
)

_SAMPLING = ("aten.argmax", "aten.topk")
_NORMS = ("aten.layer_norm", "aten.native_layer_norm", "aten.rms_norm")


def as_published(graph: GraphWork) -> GraphWork:
    """Return the work of a decoder's graph as published stacks do it, operator by operator."""
    changes = (
        _tables_ahead,
        _one_sum_of_experts,
        _fused_norms,
        scanned_states,
        fused_attention,
        absorbed_latents,
        _fused_activations,
        _matmuls,
    )
    return functools.reduce(lambda work, change: dataclasses.replace(work, steps=change(work.steps)), changes, graph)


def _tables_ahead(steps: Sequence[Step]) -> tuple[Step, ...]:
    """Outside of the layers, only rows of embeddings are read, and tokens sampled."""

    def changed(step: Step) -> Step:
        if layer_of(step.module_path) or step.matmul or step.name in _NORMS or step.name in ("host", *_SAMPLING):
            return step
        reads = {} if step.name == "aten.embedding" else {"weight_bytes": 0, "weight_rows": 0.0}
        return with_work(step, vector_elements=0.0, **reads)

    inside = norm_paths(steps)
    return tuple(step if step.module_path in inside else changed(step) for step in steps)


def _one_sum_of_experts(steps: Sequence[Step]) -> tuple[Step, ...]:
    """Shared experts and routed experts have one sum over the cores."""
    changed, behind = [], ""
    for step in steps:
        if step.matmul:
            behind = step.module_path
        is_shared = "shared" in behind and step.work.num_collectives and layer_of(behind)
        changed.append(with_work(step, num_collectives=0, collective_bytes=0) if is_shared else step)
    return tuple(changed)


def _fused_norms(steps: Sequence[Step]) -> tuple[Step, ...]:
    """A norm that is written out takes its passes once, with its widest operator."""
    widest: dict[str, int] = {}
    inside = norm_paths(steps)
    for index, step in enumerate(steps):
        if step.module_path in inside:
            best = widest.setdefault(step.module_path, index)
            if step.work.vector_elements > steps[best].work.vector_elements:
                widest[step.module_path] = index

    def changed(index: int, step: Step) -> Step:
        if step.module_path not in inside or step.matmul:
            return step
        once = index == widest[step.module_path]
        return with_work(step, vector_elements=NORM_PASSES * step.work.vector_elements if once else 0.0)

    return tuple(changed(index, step) for index, step in enumerate(steps))


def _fused_activations(steps: Sequence[Step]) -> tuple[Step, ...]:
    """Operators behind a first feed-forward matrix are computed as its results leave PSUM."""
    parents = {
        parent_of(step.module_path)
        for step in steps
        if step.matmul and step.matmul.columns > 1 and role_of_step(step) in ("up", "router")
    }
    return tuple(
        with_work(step, vector_elements=0.0, softmax_elements=0.0)
        if not (step.matmul or step.work.product_flops)
        and (step.module_path in parents or parent_of(step.module_path) in parents)
        else step
        for step in steps
    )  # fmt: skip


def _matmuls(steps: Sequence[Step]) -> tuple[Step, ...]:
    """Matrices in the layout of published stacks, and the passes over their results."""
    together: dict[tuple[str, Role | None, int], list[Matmul]] = collections.defaultdict(list)
    of_experts: dict[str, list[Matmul]] = collections.defaultdict(list)
    for step in steps:
        if step.matmul and _is_experts(step):
            of_experts[step.module_path].append(step.matmul)
        elif step.matmul:
            together[parent_of(step.module_path), role_of_step(step), step.matmul.inner].append(step.matmul)

    def changed(step: Step) -> Step:
        if not step.matmul:
            return step
        with counting(step.module_path):
            if _is_experts(step):
                return _of_experts(step, step.matmul, of_experts[step.module_path])
            role = role_of_step(step)
            return _placed(step, step.matmul, role, together[parent_of(step.module_path), role, step.matmul.inner])

    return tuple(map(changed, steps))


def _placed(step: Step, sizes: Matmul, role: Role | None, together: Sequence[Matmul]) -> Step:
    """One matmul; `together` are those of its role and its input in its module, itself included."""
    joined = is_joined(step.module_path)
    width = sizes.columns // 2 if joined else sizes.columns
    alone = sizes.num_matrices * product_cycles(sizes.rows, sizes.inner, sizes.columns)
    changes: dict[str, float] = {}
    if role in JOINED_ROLES:
        width = sum(other.columns for other in together)
        share = sizes.num_matrices * product_cycles(sizes.rows, sizes.inner, width) * sizes.columns / width
        changes["tensor_cycles"] = step.work.tensor_cycles * share / alone
    if role in (None, "router") and sizes.element_bytes <= ACTIVATION_BYTES:
        changes["tensor_cycles"] = alone
    passes = passes_of(role, num_matrices=2 if joined else len(together))
    results = sizes.num_matrices * sizes.rows * sizes.columns
    changes["vector_elements"] = step.work.vector_elements + (passes - 1) * results
    return with_work(step, weight_rows=_pieces(step, sizes, width), **changes)


def _of_experts(step: Step, sizes: Matmul, together: Sequence[Matmul]) -> Step:
    """One product with the weights of experts, or a copy of the chosen ones; `together` are those of their module."""
    first, last = together[0], together[-1]
    is_up = (sizes.inner, sizes.columns) == (first.inner, first.columns)
    num_joined = 2 if first.columns == 2 * last.inner else 1
    pieces = _pieces(step, sizes, sizes.columns // num_joined if is_up else sizes.columns)
    if not sizes.rows:
        return with_work(step, weight_rows=pieces)
    role: Role = "expert_up" if is_up else "expert_down"
    passes = passes_of(role, num_matrices=num_joined, dense=sizes.rows > 1)
    return with_work(
        step,
        weight_rows=pieces,
        tensor_cycles=sizes.num_matrices * product_cycles(sizes.rows, sizes.inner, sizes.columns),
        vector_elements=passes * sizes.num_matrices * sizes.rows * sizes.columns,
    )


def _pieces(step: Step, sizes: Matmul, width: int) -> float:
    """Pieces of a weight for DMA in matrices of `width` columns, and of its biases and scales."""
    stored = sizes.num_matrices * sizes.inner * sizes.columns * sizes.element_bytes
    if step.work.weight_bytes < stored:  # another operator reads it
        return step.work.weight_rows
    pieces = stored / contiguous_bytes(sizes.inner, width, sizes.element_bytes)
    if step.name.startswith("neuron."):
        counted = stored / contiguous_bytes(sizes.inner, sizes.columns, sizes.element_bytes)
        return pieces + max(step.work.weight_rows - counted, 0.0)
    return pieces + int(step.work.weight_bytes > stored)


def _is_experts(step: Step) -> bool:
    return step.module_path.endswith(".experts")
