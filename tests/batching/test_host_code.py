"""A manager that starts before its host code is compiled: new requests take the compiled code, old ones end on theirs.

A real compile of a tiny model, some ten seconds.
"""

from __future__ import annotations

import pytest

from optimum_neuron import NeuronModelForCausalLM
from optimum_neuron.compiler.lower import probe_compiler
from tests.batching.conftest import OPTIONS
from tests.tiny import save_tiny

pytestmark = pytest.mark.skipif(probe_compiler() is None, reason="no C++ compiler on this machine")
GREEDY = {"do_sample": False, "eos_token_id": -1}
PROMPT = [5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21]
LOGPROBS = 1e-4
"""Most that the two kinds of code differ in float32."""


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """An empty store, and separate cores."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OPTIMUM_NEURON_HOME", str(tmp_path_factory.mktemp("home")))
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """An export whose host code nobody has compiled."""
    source, folder = save_tiny(tmp_path_factory.mktemp("llama"), "llama"), tmp_path_factory.mktemp("cold")
    options = OPTIONS | {"num_blocks": 19, "optlevel": "2", "decode_buckets": (48,), "disable_validation": True}
    model = NeuronModelForCausalLM.from_pretrained(source, export=True, **options | {"optlevel": "1"})
    model.save_pretrained(folder)
    model.close()
    return folder


def start(folder, **how):
    from transformers import ContinuousBatchingConfig

    model = NeuronModelForCausalLM.from_pretrained(folder, optlevel="2", **how)
    settings = ContinuousBatchingConfig(return_logprobs=True)
    return model, model.init_continuous_batching(continuous_batching_config=settings)


def add(manager, name: str, num_tokens: int):
    manager.add_request(PROMPT, name, max_new_tokens=num_tokens, **GREEDY)
    return manager.engine._requests[name]


def answer(manager, name: str, num_tokens: int = 6):
    request = add(manager, name, num_tokens)
    while manager.engine.has_work:
        manager.engine.step()
    return request


def test_a_cold_manager_takes_compiled_code_without_a_restart(home, folder):
    model, manager = start(folder)
    engine = manager.engine
    assert engine.runner.levels == "aten" == model.describe()["host_code"]["value"]
    cold = answer(manager, "cold")
    running = add(manager, "running", 12)
    for _ in range(4):
        engine.step()
    began_on = running.state.executor
    assert engine.pool.num_cached > 0 and engine.num_on_earlier_code == 0

    assert model.wait_for_host_code(240)
    assert "inductor" in engine.runner.levels and engine.runner.levels == model.describe()["host_code"]["value"]
    assert engine.num_on_earlier_code == 1
    fresh = add(manager, "fresh", 6)
    engine.step()
    assert fresh.num_shared == 0, "what it would share comes from other code"
    assert (running.state.executor, fresh.state.executor) == (began_on, model.loaded.executor)
    while engine.has_work:
        engine.step()
    assert engine.num_on_earlier_code == 0 and running.error is None
    assert len(running.answer) == 12 and running.answer[:6] == cold.answer == fresh.answer
    assert running.logprobs[:6] == cold.logprobs, "every token is of the code that the request began with"
    assert fresh.logprobs == pytest.approx(cold.logprobs, abs=LOGPROBS)
    assert answer(manager, "later").num_shared > 0
    manager.destroy()

    restarted_model, restarted = start(folder, wait_for_host_code=True)
    assert restarted_model.prepared.host.num_compiled == 0
    assert answer(restarted, "restarted").logprobs == fresh.logprobs
    restarted.destroy()
    for one in (model, restarted_model):
        one.close()


def test_weights_that_are_replaced_serve_requests_that_begin_later(model):
    """The same rule: what runs ends on the weights that it began with, and nothing is shared with it."""
    import torch

    manager = model.init_continuous_batching()
    before = answer(manager, "before")
    running = add(manager, "running", 6)
    manager.engine.step()
    bound = model.prepared.bound.weights.tensors
    original = {name: tensor.clone() for name, tensor in bound.items()}
    torch.manual_seed(0)
    model.loaded.bind(
        model.prepared.host,
        {
            name: tensor + torch.rand_like(tensor) if tensor.is_floating_point() else tensor
            for name, tensor in original.items()
        },
    )
    try:
        after = answer(manager, "after")
    finally:
        model.loaded.bind(model.prepared.host, bound)
    assert running.answer == before.answer and after.answer != before.answer
    assert answer(manager, "again").answer == before.answer
    manager.destroy()
