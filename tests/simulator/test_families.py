"""Every family of decoders, and every layer with states of its own, has a cost: nothing in its graphs stops it.

Families of `test_published.py` are counted there.
"""

from __future__ import annotations

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode
from transformers import AutoModelForCausalLM

from optimum_neuron.compiler import compile_graphs
from optimum_neuron.exporters import neuron_config
from optimum_neuron.kinds import kind_of
from optimum_neuron.simulator.work import as_published, work_of_program
from optimum_neuron.sources import load_source
from tests.models.generic.test_states import CASES
from tests.simulator.test_published import ARCHITECTURES
from tests.tiny import CONFIGS, FAMILY_CONFIGS, tiny_config

STATES = {name: sizes for name, sizes in CASES.items() if name not in CONFIGS | FAMILY_CONFIGS}
ROWS, PROMPT = 2, 8
OPTIONS = {
    "task": "text-generation",
    "batch_size": ROWS,
    "sequence_length": 16,
    "prefill_buckets": (PROMPT,),
    "decode_buckets": (16,),
    "extend_length": 1,
    "torch_dtype": "float32",
}


def counted(folder, model_type: str, roles: tuple[str, ...]):
    """Work of the graphs of some roles."""
    tiny_config(model_type, **STATES.get(model_type, {})).save_pretrained(folder)
    source = load_source(folder)
    config, _ = neuron_config(source, OPTIONS, trust_remote_code=False)
    plan = kind_of(config.task, model_type).plan(source, config, trust_remote_code=False)
    kept = [one for one in plan.captures if one.keywords["role"] in roles]
    program = compile_graphs(kept, target=None, num_stages=plan.num_stages).program
    return [as_published(work_of_program(program, name)) for name in program.graphs]


@pytest.mark.full(days=10)
@pytest.mark.parametrize("model_type", sorted({*CONFIGS, *FAMILY_CONFIGS, *STATES} - {*ARCHITECTURES}))
def test_every_family_has_a_cost(tmp_path, model_type):
    (work,) = counted(tmp_path, model_type, ("decode",))
    assert work.unknown == () and work.total.product_flops > 0 and work.total.weight_bytes > 0


def test_gates_of_a_recurrence_are_products_as_torch_counts_them(tmp_path):
    prefill, decode = counted(tmp_path, "recurrent_gemma", ("prefill", "decode"))
    model = AutoModelForCausalLM.from_config(tiny_config("recurrent_gemma", **STATES["recurrent_gemma"]))
    layers = [name for name, module in model.named_modules() if name.endswith("rg_lru")]
    for work, num_tokens in ((prefill, PROMPT), (decode, 1)):
        with FlopCounterMode(display=False) as counter:
            model(torch.ones(ROWS, num_tokens, dtype=torch.long), use_cache=False)
        expected = [flops for name, flops in counter.get_flop_counts().items() if name.endswith("rg_lru")]
        found = [step.work.product_flops for step in work.steps if step.module_path.endswith("rg_lru") and step.matmul]
        assert sum(found) == sum(sum(flops.values()) for flops in expected) > 0
        assert len(found) == 2 * len(layers)  # of the input, and of the state
        assert sum(step.scans is not None for step in work.steps) == len(layers)
