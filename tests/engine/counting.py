"""A compiled decoder that counts: a stand-in for programs, which computes in microseconds.

It keeps tokens in its cache, and its logits are the position of a token, a weighted sum of all tokens up to it, and
their number. So a token in a wrong slot, row, or order changes every later result, and so does padding that a state
without slots counts.
"""

from __future__ import annotations

import torch

from optimum_neuron.base.core import TensorSpec
from optimum_neuron.compiler import Graph, Program
from optimum_neuron.engine import Input, RoleSignature, Signature, StateSignature
from optimum_neuron.runtime import State

NUM_ROWS, SLOTS, BLOCK = 2, 12, 3
PREFILL, EXTEND, DECODE = (2, 4), 3, (6, SLOTS)


class StandIn:
    """What the engine asks of a loaded program; subclasses have a `program` and `compute` results."""

    executor = None
    program: Program
    num_prepared = 0

    def take_state(self, beside=None):
        return State(torch.zeros(spec.shape) for spec in self.program.states.values())

    def give_back(self, state):
        pass

    def prepared(self, graph, inputs, state):
        self.num_prepared += 1
        return lambda: self.run(graph, inputs, state)

    def run(self, graph, inputs, state):
        specs = self.program.graphs[graph].inputs
        assert [tuple(one.shape) for one in inputs] == [spec.shape for spec in specs.values()]
        return self.compute(graph, dict(zip(specs, inputs, strict=True)), state)


class Loaded(StandIn):
    """The stand-in, with a row of slots for each sequence, or with blocks; `extras` are inputs beside those."""

    def __init__(
        self, *, is_paged=False, prefill=PREFILL, extend=(EXTEND,), extras=(), num_blocks=1 + NUM_ROWS * SLOTS // BLOCK
    ):
        self.is_paged, self.extras, self.runs = is_paged, {*extras}, []
        self.counts = "num_new_tokens" in extras
        graphs = [self.graph("decode", NUM_ROWS, 1, num_slots=slots) for slots in DECODE]
        graphs += [self.graph("extend", NUM_ROWS, length, num_tokens=length) for length in extend]
        for role in ("prefill", "score"):
            if not is_paged:
                graphs += [self.graph(role, NUM_ROWS, length, num_tokens=length) for length in prefill]
                continue
            graphs += [self.graph(role, 1, prefill[-1], num_slots=slots) for slots in DECODE]
            for length in prefill[:-1] if role == "prefill" else ():
                graphs += [self.graph(role, 1, length, num_tokens=length, num_slots=slots) for slots in DECODE]
        states = {"tokens.0": (num_blocks, BLOCK) if is_paged else (NUM_ROWS, SLOTS)}
        states |= {"count.0": (NUM_ROWS,)} if self.counts else {}
        specs = {name: TensorSpec(shape=shape, dtype="float32") for name, shape in states.items()}
        by_name = {graph.name: graph for graph in graphs}
        self.program = Program(graphs=by_name, subprograms={}, weights={}, states=specs, constants={})
        axes = ("num_blocks", "block_size") if is_paged else ("batch_size", "num_slots")
        names = by_name[f"decode_1_{DECODE[0]}"].inputs
        inputs = tuple(Input(name=name, dtype="int64", axes=()) for name in names)
        roles = {"decode": RoleSignature(inputs=inputs, outputs={})}
        both = {"tokens": StateSignature(axes=axes), "count": StateSignature(axes=axes[:1])}
        names = {name.rpartition(".")[0] for name in states}
        self.signature = Signature(roles=roles, states={name: both[name] for name in sorted(names)})

    def graph(self, role, rows, length, **sizes):
        shapes = {"input_ids": (rows, length), "positions": (rows, length)}
        if self.is_paged:
            shapes["block_table"] = (rows, sizes.get("num_slots", SLOTS) // BLOCK)
        is_chunk = self.is_paged and role in ("prefill", "score")
        shapes |= {"num_new_tokens": (rows,)} if self.counts or (self.is_paged and role != "decode") else {}
        shapes |= {"state_row": (1,)} if is_chunk and self.counts else {}
        shapes |= {"last": (rows,)} if role == "prefill" else {}
        shapes |= {"adapter_index": (rows,)} if "adapter_index" in self.extras else {}
        inputs = {name: TensorSpec(shape=shape, dtype="int64") for name, shape in shapes.items()}
        name = "_".join(map(str, (role, length, *sizes.values())))
        return Graph(name=name, inputs=inputs, outputs={}, calls=(), role=role, sizes=sizes)

    def compute(self, graph, named, state):
        self.runs.append(graph)
        ids, positions = named["input_ids"], named["positions"]
        table = named.get("block_table")
        dense = state[0] if table is None else state[0][table].flatten(1)
        num_slots = self.program.graphs[graph].sizes.get("num_slots", SLOTS)
        assert int(positions.max()) < num_slots
        new = named.get("num_new_tokens", torch.full((len(ids),), ids.shape[1]))
        for row, column in (torch.arange(ids.shape[1]) < new[:, None]).nonzero().tolist():
            place = int(positions[row, column])
            dense[row, place] = ids[row, column]
            if table is not None:
                state[0][table[row, place // BLOCK], place % BLOCK] = ids[row, column]
        counts = positions + 1
        if self.counts:
            rows = named.get("state_row", torch.arange(NUM_ROWS))
            begins = graph.startswith(("prefill", "score")) and not self.is_paged
            before = torch.zeros(NUM_ROWS) if begins else state[1][rows]
            state[1][rows] = before + new
            counts = before[:, None] + torch.minimum(torch.arange(1, ids.shape[1] + 1), new[:, None])
        sums = (dense * torch.arange(1, dense.shape[1] + 1))[:, :num_slots].cumsum(1)
        sums = sums + 1000 * named["adapter_index"][:, None] if "adapter_index" in named else sums
        every = torch.stack([positions.float(), sums.gather(1, positions), counts.float()], -1)
        last = every.gather(1, named["last"][:, None, None].expand(-1, 1, 3)) if "last" in named else every
        self.last = {"logits": last, "hidden_states.1": every}
        return self.last
