"""An engine whose program counts: a step takes microseconds, and the answer of a request is known from its tokens.

The program keeps a number for each token in blocks. Its largest logit follows from the weighted sum of all numbers of a
sequence, so a token in a wrong slot, block, row, or order changes what comes after it. As in attention, a masked slot
counts 0 times what it holds: NaN that is left in a block spoils every sequence that lists it.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

import torch
from transformers import LogitsProcessorList, StoppingCriteriaList

from optimum_neuron.batching import Engine, Request, Runner
from optimum_neuron.batching.request import Adapter
from optimum_neuron.batching.sampling import Sampler
from optimum_neuron.engine import NEXT_TOKEN, TOP_LOGITS, TOP_TOKENS, Draft
from optimum_neuron.runtime import State
from tests.engine.counting import BLOCK, NUM_ROWS, Loaded

VOCABULARY = 64
SPOILT = 1
"""The token whose number is NaN; no answer has it otherwise."""


def next_token(tokens: list[int], more: int = 0) -> int:
    """Return what follows; `more` is what code and adapter add to each number."""
    total = sum(place * (token + more) for place, token in enumerate(tokens, 1))
    return 2 + (7 * total + 3 * len(tokens)) % (VOCABULARY - 2)


def answer_of(prompt: list[int], number: int, more: int = 0) -> list[int]:
    """Return the likeliest answer to a prompt."""
    tokens = [*prompt]
    for _ in range(number):
        tokens.append(next_token(tokens, more))
    return tokens[len(prompt) :]


def logits_of(token: int) -> torch.Tensor:
    """Return logits whose largest is that of a token."""
    return -((torch.arange(VOCABULARY) - token) % VOCABULARY).float()


class Program(Loaded):
    """The program; `executor.more` is what host code adds to each number, `num_read` how many candidates it returns."""

    tracks = (SimpleNamespace(instance=SimpleNamespace(name="inf2.xlarge")),)
    num_read = 0
    reads_all = True
    """Whether steps return all logits that they have, beside candidates."""

    def __init__(self, **options):
        super().__init__(is_paged=True, prefill=(2, BLOCK), **options)
        self.executor, self.given_back = SimpleNamespace(more=0, levels="first"), []
        self.need = SimpleNamespace(kv_cache=4 * self.program.states["tokens.0"].num_elements)

    def take_state(self, beside=None):
        return self.renewed(super().take_state())

    def renewed(self, state):
        fresh = State(state)
        fresh.executor = self.executor
        return fresh

    def give_back(self, state):
        self.given_back.append(state)

    def compute(self, graph, named, state):
        self.runs.append(graph)
        ids, positions, table = named["input_ids"], named["positions"], named["block_table"]
        adapters = named.get("adapter_index", torch.zeros(len(ids), dtype=torch.long))
        new = named.get("num_new_tokens", torch.full((len(ids),), ids.shape[1]))
        is_real, pool = torch.arange(ids.shape[1]) < new[:, None], state[0]
        numbers = torch.where(ids == SPOILT, torch.nan, ids + state.executor.more + 8 * adapters[:, None])
        blocks = torch.where(is_real, table.gather(1, positions // BLOCK), 0)
        pool[blocks, positions % BLOCK] = numbers.float()
        slots = pool[table].flatten(1)
        places = torch.arange(slots.shape[1])
        is_seen = places <= positions[:, :, None]
        totals = (is_seen * slots[:, None] * (places + 1)).sum(-1)
        pool[0, :] += 0 * totals[~is_real].sum()  # what padding computes is written too
        counts = positions + 1
        if self.counts:
            rows = named.get("state_row", torch.arange(NUM_ROWS))
            counts = state[1][rows][:, None] + torch.minimum(torch.arange(1, ids.shape[1] + 1), new[:, None])
            state[1][rows] += new
        likeliest = 2 + (7 * totals + 3 * counts) % (VOCABULARY - 2)
        logits = -((torch.arange(VOCABULARY) - likeliest[:, :, None]) % VOCABULARY)
        logits[..., 1:] = logits[..., 1:].nan_to_num()  # one is enough
        if "last" in named:
            logits = logits[range(len(ids)), named["last"]][:, None]
        results = {"logits": logits, "hidden_states.1": positions[:, :, None].float()}
        if self.num_read and graph.startswith("decode"):
            top = logits.topk(self.num_read)
            results |= {NEXT_TOKEN: top.indices[..., :1], TOP_LOGITS: top.values, TOP_TOKENS: top.indices}
            results["logits"] = logits if self.reads_all else torch.zeros_like(logits)
        return results


def engine_of(**options) -> Engine:
    """Return an engine with a program of its own."""
    loaded = Program(**options)
    return Engine(Runner(loaded, loaded.signature))


def request(name: str, prompt: list[int], number: int, *, adapter: int = 0, **options) -> Request:
    """Return a request that takes the likeliest tokens; some options are of its sampler."""
    own = {"end_ids": frozenset(), "processors": LogitsProcessorList(), "criteria": StoppingCriteriaList()}
    own |= {"generator": None, "wants_logprobs": False, "draft": None}
    own = {key: options.pop(key, value) for key, value in own.items()}
    sampler = Sampler(prompt=prompt, max_new_tokens=number, **own)
    options |= {"sampler": sampler, "draft": own["draft"], "adapter": Adapter(index=adapter, key=bytes(adapter))}
    return Request(request_id=name, prompt=prompt, max_new_tokens=number, **options)


def finish(engine: Engine, until: Callable[[], object] = lambda: False) -> list[Request]:
    """Take steps until there is no work, or something is true; return the requests that changed in them."""
    changed = []
    for _ in range(500):
        if until() or not engine.has_work:
            return changed
        changed += engine.step()
    raise AssertionError("there is no end")


def serve(engine: Engine, requests: list[Request]) -> None:
    """Answer requests that come at once."""
    for one in requests:
        engine.add(one)
    finish(engine)
    assert (engine.pool.num_used, engine.pool.num_free) == (0, engine.pool.num_usable)


class Same(Draft):
    """Proposes the same tokens always."""

    name = "same"

    def __init__(self, *candidates: int) -> None:
        self.candidates = list(candidates)

    def propose(self, ids_1C, hidden_NF):
        return self.candidates
