"""Attention, latent attention, and recurrent states in graphs of decoders, as published stacks run them.

    fused attention    operators between the projections are part of its kernel, also where scores are written out;
                       slots of a window are written without being read
    absorbed latents   a prompt and a step multiply latents without expanding them, and read each once
    scanned states     each token changes the state in order, whatever chunks a graph has

`sizes.py` counts both for sizes and for graphs.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Sequence

from ...compiler import contiguous_bytes
from .record import Attention, Matmul, Scan, Step, Work
from .roles import counting, is_inside, norm_paths, parent_of, role_of_step, with_work
from .sizes import LatentSizes, scan


def fused_attention(steps: Sequence[Step]) -> tuple[Step, ...]:
    """Operators between the projections take the one pass that these have for them."""
    attending = {step.module_path for step in steps if step.attends}
    reading = {step.module_path for step in steps if step.work.state_bytes and _is_part(step)}

    def changed(step: Step) -> Step:
        if step.module_path not in attending or step.matmul:
            return step
        if _is_part(step):
            cycles = step.work.attention_cycles + step.work.tensor_cycles
            return with_work(step, vector_elements=0.0, tensor_cycles=0.0, attention_cycles=cycles)
        read = 0 if step.module_path in reading else step.work.state_bytes
        return with_work(step, vector_elements=0.0, state_bytes=read)

    return tuple(map(changed, steps))


def _is_part(step: Step) -> bool:
    """Return whether a step is attention, or one of its products where it is written out."""
    return not step.matmul and bool(step.attends or step.work.product_flops)


def absorbed_latents(steps: Sequence[Step]) -> tuple[Step, ...]:
    """Latent attention with its two products with the weight from latents to heads."""
    result = list(steps)
    for index, step in enumerate(steps):
        if step.attends and _projections(steps, step.module_path, "latent_in"):
            with counting(step.module_path):
                _absorb(result, index, step.attends)
    return tuple(result)


def _absorb(steps: list[Step], index: int, attends: Attention) -> None:
    """Count the latent attention at `index` in place."""
    path, heads = steps[index].module_path, attends.num_heads
    own = [i for i, step in enumerate(steps) if step.module_path == path and step.matmul]
    up = own or [i for i, step in enumerate(steps) if _is_projection(step, path, "absorbed")]
    latents = [sizes for name, sizes in _projections(steps, path, "latent_in") if ".kv_" in name]
    queries = sum(sizes.columns for _, sizes in _projections(steps, path, "attention_in"))
    first = steps[up[0]].matmul
    assert first is not None and latents, "latents have a weight to them and one from them"
    rank = first.columns if own else first.inner
    rotary = latents[0].columns - rank
    plain = queries // heads - rotary
    width = first.columns // heads - plain
    if own:
        last = steps[up[-1]].matmul
        assert last is not None, "it is one of those with sizes"
        width = last.columns
    latent = LatentSizes(rank=rank, rotary=rotary, plain=plain, value=width)
    read = sum(step.work.state_bytes for step in steps if step.module_path == path)
    # An absorbed step reads latents twice: for scores, and for results.
    element_bytes = read / (attends.num_rows * attends.keys * (latent.kept + rank))
    num_tokens = attends.num_rows * attends.queries
    for i, step in enumerate(steps):
        if step.module_path == path or i in up:
            steps[i] = _only_weights(step)
    columns = heads * (plain + width)
    pieces = rank * columns * first.element_bytes / contiguous_bytes(rank, columns, first.element_bytes)
    products = latent.absorbed(num_heads=heads, tokens=num_tokens)
    steps[up[0]] = _added(with_work(steps[up[0]], weight_rows=pieces), products)
    steps[index] = _added(steps[index], latent.attention(attends, cache_bytes=element_bytes))


def scanned_states(steps: Sequence[Step]) -> tuple[Step, ...]:
    """A scan in place of everything between the projections of a module with a recurrent state."""
    result, norms = list(steps), norm_paths(steps)
    for index, step in enumerate(steps):
        if step.scans is not None:
            with counting(step.module_path):
                _scan(result, steps, index, step.scans, norms)
    return tuple(result)


def _scan(result: list[Step], steps: Sequence[Step], index: int, scans: Scan, norms: Collection[str]) -> None:
    """Count the recurrent state that the step at `index` writes, in place."""
    path, is_read, is_first = steps[index].module_path, False, True
    for i, other in enumerate(steps):
        if not is_inside(other.module_path, path) or other.matmul or other.module_path in norms:
            continue
        is_read |= other.work.state_bytes > 0
        result[i] = _only_weights(other)
        if other.work.weight_bytes:
            result[i] = with_work(result[i], weight_rows=float(is_first))
            is_first = False
    result[index] = _added(result[index], scan(_num_tokens(steps, path, scans), scans.elements, is_step=is_read))


def _num_tokens(steps: Sequence[Step], path: str, scans: Scan) -> int:
    """Tokens that a recurrent module reads: rows of its matmuls, or of those of the module around it."""
    while path:
        rows = [step.matmul.rows for step in steps if step.matmul and is_inside(step.module_path, path)]
        if rows:
            return max(rows)
        path = parent_of(path)
    return scans.num_rows


def _projections(steps: Sequence[Step], path: str, role: str) -> list[tuple[str, Matmul]]:
    """Paths and sizes of the matmuls of a role in a module."""
    return [(step.module_path, step.matmul) for step in steps if step.matmul and _is_projection(step, path, role)]


def _is_projection(step: Step, path: str, role: str) -> bool:
    return parent_of(step.module_path) == path and role_of_step(step) == role


def _only_weights(step: Step) -> Step:
    work = Work(weight_bytes=step.work.weight_bytes, weight_rows=step.work.weight_rows)
    return dataclasses.replace(step, work=work, matmul=None)


def _added(step: Step, work: Work) -> Step:
    return dataclasses.replace(step, work=step.work + work)
