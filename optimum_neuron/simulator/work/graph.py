"""Graphs to work: captured entry points, compiled programs, and plain torch.fx graphs with fake values.

Each operator is counted by `compiler/work.py`. Reads from HBM are added here, because only a graph knows which of its
values are weights and states: a weight once for each call that uses it, a lookup with the rows that it returns, keys
and values with the part that attention reads. It does not depend on targets or time.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from ...base.core import AutoCast, TensorSpec
from ...compiler import LOOKUPS, CallWork, base_of, contiguous_bytes, shares_memory, work_of
from ...compiler.rules import OpCall, find_rule, symbols
from ...upstream.torch import schema_of
from .activations import part_of_gelu
from .record import Attention, GraphWork, Kernels, Matmul, Scan, Step, Work
from .roles import counting

if TYPE_CHECKING:
    from torch.fx import GraphModule, Node

    from ...compiler import Program

SBUF_BYTES = 24 * 2**20
"""On-chip memory of the smallest core, NeuronCore-v2; a larger result goes through HBM."""
FLOAT32_CYCLES = 4
"""Factor by which a float32 matmul is slower (`hardware.CoreTiming.fp32_matmul_factor`)."""

_LINEAR = ("aten.linear", "neuron.quantized_linear", "neuron.dynamic_quantized_linear")
_SUMS_OF_ROWS = ("aten._embedding_bag", "aten._embedding_bag_forward_only", "aten.embedding_bag")
_OF_EXPERTS = ("aten.matmul", "aten.tensordot", "aten.index")
_OF_HEADS = "aten.baddbmm"
"""A product of each head with its own matrix."""

Role = Literal["weight", "state", "recurrent", "value"]
"""Of an input of a graph; a recurrent state is read and written whole by each run."""
_STATES: tuple[Role, ...] = ("state", "recurrent")


def work_of_program(program: Program, graph_name: str, *, auto_cast: AutoCast = "none") -> GraphWork:
    """Work of one run of one entry point of a compiled program, on one core, or on one of each stage.

    With `auto_cast` "matmul" and "all", float32 products run at the 16-bit rate and read weights of 16 bits; with
    "all", results have 16 bits too.
    """
    from ...engine import NEXT_TOKEN  # imports torch

    graph = program.graphs[graph_name]
    counted: dict[tuple[str, tuple[Role, ...]], list[_Counted]] = {}
    steps: list[Step] = []
    for call in graph.calls:
        roles = tuple(_role(value) for value in call.inputs)
        key = (call.subprogram, roles)
        if key not in counted:
            with counting(call.module_path):
                counted[key] = _count_body(program.subprograms[call.subprogram].body, roles, auto_cast)
        for entry in counted[key]:
            path = _joined(call.module_path, entry.inner_path)
            steps.append(dataclasses.replace(entry.step, module_path=path, stage=call.stage))
    # A step that samples on the device returns logits too, which the host reads for few settings.
    unread = {"logits"} if NEXT_TOKEN in graph.outputs else set()
    results = [value for name, value in graph.outputs.items() if name not in unread]
    moved = [*graph.inputs.values(), *(program.value_spec(graph, value) for value in results)]
    steps.append(Step(name="host", work=Work(host_bytes=sum(spec.size_bytes for spec in moved))))
    return _graph_work(graph_name, steps)


def work_of_graph(
    graph_module: GraphModule, *, name: str = "graph", roles: Sequence[Role] | None = None, auto_cast: AutoCast = "none"
) -> GraphWork:
    """Work of one run of a torch.fx graph of ATen operators whose nodes have fake values.

    `roles` are the roles of the placeholders; None for values that the caller passes.
    """
    inputs = graph_module.graph.find_nodes(op="placeholder")
    roles = roles or ["value"] * len(inputs)
    steps = [entry.step for entry in _count_body(graph_module, roles, auto_cast)]
    on_device = [node for node, role in zip(inputs, roles, strict=True) if role != "value"]
    return _graph_work(name, [*steps, Step(name="host", work=Work(host_bytes=border_bytes(graph_module, on_device)))])


def work_on_device(graph_module: GraphModule, *, name: str = "graph") -> GraphWork:
    """Work of one run of a torch.fx graph whose tensors stay in HBM between graphs, such as those of torch's device.

    Every input is read from HBM, as weights are, and every result is written there. Nothing is copied from or to the
    host.
    """
    inputs = graph_module.graph.find_nodes(op="placeholder")
    counted = _count_body(graph_module, ["weight"] * len(inputs), "none")
    steps = [dataclasses.replace(entry.step, module_path=entry.inner_path) for entry in counted]
    written = sum(_size_bytes(node.meta["val"]) for node in _written(graph_module))
    return _graph_work(name, [*steps, Step(name="results", work=Work(result_bytes=written))])


def _graph_work(name: str, steps: Sequence[Step]) -> GraphWork:
    unknown = {step.name for step in steps if step.work.num_unknown}
    return GraphWork(name=name, steps=tuple(steps), unknown=tuple(sorted(unknown)))


def _written(graph_module: GraphModule) -> list[Node]:
    """Tensors that a graph leaves in HBM: its results, and inputs that it changes."""
    *nodes, output = graph_module.graph.nodes
    changed = [node.args[0] for node in nodes if str(node.target) == "aten.copy_.default"]
    results = [node for node in output.all_input_nodes if base_of(node).op != "placeholder"]
    return [node for node in dict.fromkeys((*changed, *results)) if _is_known(node.meta.get("val"))]


def _is_known(value: Any) -> bool:
    """Return whether it is a tensor whose size is known at compile time."""
    return hasattr(value, "element_size") and not symbols(value.shape)


def flops_by_dtype(graph_module: GraphModule) -> dict[str, int]:
    """Operations of the products of a graph, by the dtype of their operands."""
    flops: dict[str, int] = {}
    for node in graph_module.graph.nodes:
        if (work := _call_work(node)[1]) and work.counted == "products":
            flops[str(work.dtype)] = flops.get(str(work.dtype), 0) + work.flops
    return flops


def border_bytes(graph_module: GraphModule, on_device: Collection[Node] = ()) -> int:
    """Bytes of the inputs and results of a graph, a result that is an input once, without `on_device`."""
    import torch

    nodes = list(graph_module.graph.nodes)
    inputs = [node for node in nodes if node.op == "placeholder" and node not in on_device]
    results = {node for node in nodes[-1].all_input_nodes if node.op != "placeholder"}
    values = [node.meta.get("val") for node in (*inputs, *results)]
    return sum(value.numel() * value.element_size() for value in values if isinstance(value, torch.Tensor))


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Counted:
    step: Step
    inner_path: str


def _role(value: str) -> Role:
    kind, _, name = value.partition(":")
    if kind == "state":
        return "recurrent" if name.startswith("recurrent_state") else "state"
    return "weight" if kind in ("weight", "const") else "value"


def _joined(path: str, inner: str) -> str:
    """Path of a body's operator in the call at `path`: equal layers share the body of the first one."""
    outer, parts = path.split("."), inner.split(".")
    same = (here == there or (here.isdigit() and there.isdigit()) for here, there in zip(outer, parts, strict=False))
    if len(parts) >= len(outer) and all(same):
        return ".".join([*outer, *parts[len(outer) :]])
    return f"{path}.{inner}".strip(".")


def _call_work(node: Node) -> tuple[OpCall, CallWork] | tuple[None, None]:
    """A call and its work; None for other nodes, and for bookkeeping that touches no data."""
    if node.op != "call_function":
        return None, None
    call = OpCall.from_node(node)
    rule = find_rule(call.op)
    if (rule is not None and not rule.touches_data) or call.op.startswith("python."):
        return None, None
    return call, work_of(call)


def _count_body(body: GraphModule, roles: Sequence[Role], auto_cast: AutoCast) -> list[_Counted]:
    role_of = dict(zip(body.graph.find_nodes(op="placeholder"), roles, strict=True))
    read: set[Node] = set()
    fused = part_of_gelu(body.graph)
    counted = []
    for node in body.graph.nodes:
        call, call_work = _call_work(node)
        if call is None or call_work is None:
            continue
        if node in fused:
            call_work = dataclasses.replace(call_work, vector_elements=0)
        work = _resources(call, call_work, auto_cast) + _traffic(node, call, role_of, read, auto_cast)
        scans = _scans(node, role_of)
        if work == Work() and scans is None:
            continue
        line = call.source_line or node.meta.get("source_line", "")
        name = f"nki.{call_work.kernel.rpartition('_')[0]}" if call_work.kernel else call.name
        sizes = _matmul(node, call, role_of)
        attends = _attends(call, call_work)
        step = Step(name=name, work=work, source_line=line, matmul=sizes, attends=attends, scans=scans)
        counted.append(_Counted(step=step, inner_path=call.module_path or node.meta.get("module_path", "")))
    return counted


def _attends(call: OpCall, call_work: CallWork) -> Attention | None:
    """Sizes of attention, fused or written out: its scores have rows, heads, queries, and keys."""
    if call_work.attention_cycles:
        *leading, queries, _ = call.inputs[0].shape
        keys = call.inputs[1].shape[-2]
    elif call_work.softmax_elements and len(call.outputs[0].shape) >= 4:
        *leading, queries, keys = call.outputs[0].shape
    else:
        return None
    return Attention(num_rows=math.prod(leading[:-1]), num_heads=leading[-1], queries=queries, keys=keys)


def _scans(node: Node, role_of: Mapping[Node, Role]) -> Scan | None:
    """Sizes of a recurrent state that an operator writes, of the sequences of this run."""
    if not _writes(node) or role_of.get(_origin(node.all_input_nodes[0])) != "recurrent":
        return None
    num_rows, *sizes = node.all_input_nodes[-1].meta["val"].shape
    return Scan(num_rows=num_rows, elements=math.prod(sizes))


def _matmul(node: Node, call: OpCall, role_of: Mapping[Node, Role]) -> Matmul | None:
    """Sizes of a product with a weight that the program keeps as a matrix, or as one for each expert."""
    if call.name not in (*_LINEAR, *_OF_EXPERTS, _OF_HEADS) or len(node.args) < 2:
        return None
    stored = _origin(node.args[{"aten.index": 0, _OF_HEADS: 2}.get(call.name, 1)])
    if str(stored.target) == "aten.index.Tensor":
        stored = _origin(stored.args[0])
    if role_of.get(stored) != "weight":
        return None
    element_bytes = _size_bytes(stored.meta["val"]) / stored.meta["val"].numel()
    if call.name in _LINEAR:
        *leading, inner = call.inputs[0].shape
        columns = call.outputs[0].shape[-1]
        # Numbers of 4 bits share a byte.
        element_bytes = _size_bytes(stored.meta["val"]) / (inner * columns)
        return Matmul(rows=math.prod(leading), inner=inner, columns=columns, element_bytes=element_bytes)
    if call.name == _OF_HEADS:
        (_, rows, inner), (count, _, columns) = call.inputs[1].shape, call.inputs[2].shape
        return Matmul(rows=rows, inner=inner, columns=columns, num_matrices=count, element_bytes=element_bytes)
    shape = call.outputs[0].shape if call.name == "aten.index" else call.inputs[1].shape
    if len(shape) != 3:
        return None
    # A picked weight has its results first or its inputs first; pieces for DMA are the same.
    count, inner, columns = shape if call.name != "aten.index" else (shape[0], shape[2], shape[1])
    rows = 0 if call.name == "aten.index" else call.inputs[0].shape[-2]
    return Matmul(rows=rows, inner=inner, columns=columns, num_matrices=count, element_bytes=element_bytes)


def _exchanged(call: OpCall) -> Work:
    """An all-reduce sends its operands twice, a gather or a scatter once (Rabenseifner 2004, section 4)."""
    largest = max(sum(spec.size_bytes for spec in specs) for specs in (call.inputs, call.outputs))
    if call.name == "neuron.send":
        return Work(num_sends=1, sent_bytes=largest)
    return Work(num_collectives=1, collective_bytes=largest if "all_reduce" in call.name else largest // 2)


def _resources(call: OpCall, call_work: CallWork, auto_cast: AutoCast) -> Work:
    rule = find_rule(call.op)
    if rule is not None and rule.name == "collective":
        return _exchanged(call)
    slow = FLOAT32_CYCLES if call_work.dtype == "float32" and auto_cast == "none" else 1
    attends = _attends(call, call_work)
    is_step = attends is not None and attends.queries == 1
    # Operators fused into a matmul have no result.
    made = not call_work.kernel and (call_work.counted == "products" or call_work.vector_elements)
    spilled = sum(_rounded_bytes(spec, auto_cast) for spec in call.outputs) if made else 0
    return Work(
        flops=call_work.flops,
        product_flops=call_work.flops if call_work.counted == "products" else 0,
        tensor_cycles=slow * call_work.tensor_cycles,
        attention_cycles=slow * call_work.attention_cycles,
        vector_elements=call_work.vector_elements,
        unpacked_elements=call_work.unpacked_elements,
        softmax_elements=call_work.softmax_elements,
        attention_reads=attends.num_rows * attends.num_heads if attends is not None and is_step else 0,
        num_attentions=int(is_step),
        spill_bytes=2 * spilled if spilled > SBUF_BYTES else 0,
        num_unknown=int(call_work.counted == "unknown"),
        kernels=Kernels(((call_work.kernel, 1),)) if call_work.kernel else Kernels(),
    )


def _traffic(node: Node, call: OpCall, role_of: Mapping[Node, Role], read: set[Node], auto_cast: AutoCast) -> Work:
    """Weights and states that an operator reads; views and casts read nothing, their users do."""
    rule = find_rule(call.op)
    kind = rule.name if rule is not None else ""
    if shares_memory(node) and not _writes(node):
        return Work()
    if any(-1 in spec.shape for spec in call.tensors):
        return Work()  # `work_of` counts it as unknown
    total = Work()
    for source in node.all_input_nodes:
        base = _origin(source)
        role = role_of.get(base, "value")
        value = source.meta.get("val")
        if role == "value" or not hasattr(value, "shape"):
            continue
        if role in _STATES:
            if not _writes(node) and kind != "cast" and not call.name.endswith("_like"):
                # As many elements as it takes, of the stored bytes, also behind a cast.
                num_read = (node.meta["val"] if kind in LOOKUPS else value).numel()
                total += Work(state_bytes=int(num_read) * base.meta["val"].element_size())
        elif kind in LOOKUPS:
            total += _lookup_traffic(call, auto_cast)
        elif kind != "cast" and base not in read:
            read.add(base)
            total += _weight_traffic(base.meta["val"], auto_cast)
    return total


def _origin(node: Node) -> Node:
    """The placeholder behind views and casts."""
    while True:
        node = base_of(node)
        rule = find_rule(str(node.target)) if node.op == "call_function" else None
        if rule is None or rule.name != "cast":
            return node
        node = node.args[0]


def _writes(node: Node) -> bool:
    schema = schema_of(node)
    return schema is not None and any(a.alias_info is not None and a.alias_info.is_write for a in schema.arguments)


def _rounded_bytes(spec: TensorSpec, auto_cast: AutoCast) -> int:
    """Bytes of a value on the chip: where all of float32 is rounded, as if it was stored in 16 bits."""
    return spec.size_bytes // 2 if auto_cast == "all" and spec.dtype == "float32" else spec.size_bytes


def _lookup_traffic(call: OpCall, auto_cast: AutoCast) -> Work:
    """Rows that a lookup reads: those of its result, or every row that the result sums."""
    found = call.outputs[0]
    num_rows = math.prod(found.shape[:-1])
    if call.name in _SUMS_OF_ROWS:
        num_rows = math.prod(call.inputs[1].shape)
    row_bytes = _rounded_bytes(found, auto_cast) // max(1, math.prod(found.shape[:-1]))
    return Work(weight_bytes=num_rows * row_bytes, weight_rows=num_rows)


def _weight_traffic(value: Any, auto_cast: AutoCast) -> Work:
    matrix = len(value.shape) >= 2
    element = int(value.element_size())
    if auto_cast == "all" or (matrix and auto_cast == "matmul"):
        element = min(element, 2)
    size_bytes = element * int(value.numel())
    if not size_bytes:
        return Work()
    if not matrix:
        return Work(weight_bytes=size_bytes, weight_rows=1)
    columns, inner = value.shape[:2]
    taps = math.prod(value.shape[2:])
    return Work(weight_bytes=size_bytes, weight_rows=size_bytes / (taps * contiguous_bytes(inner, columns, element)))


def _size_bytes(value: Any) -> int:
    return int(value.numel()) * int(value.element_size())
