"""Requests read the candidates of the device where their settings allow, and get the tokens that they get without."""

import pytest
import torch

from optimum_neuron.engine import TOP_LOGITS
from tests.batching.test_engine import prompts

MAX_TOPK = 32
SETTINGS = {
    "one token": {"do_sample": False},
    "32 candidates": {"do_sample": True, "top_k": 8, "top_p": 0.9, "temperature": 0.7},
    "top_k=32 is not below max_topk=32": {"do_sample": True, "top_k": MAX_TOPK},
    "top_k=0": {"do_sample": True, "top_k": 0},
    "RepetitionPenaltyLogitsProcessor": {"do_sample": False, "repetition_penalty": 1.3},
}


@pytest.fixture(scope="module")
def sampling(export, checkpoint_of_model):
    return export(checkpoint_of_model, on_device_sampling=True, max_topk=MAX_TOPK)


def served(model, requests):
    with model.continuous_batching_context_manager() as manager:
        names = [
            manager.add_request(prompt, max_new_tokens=12, seed=seed, **settings)
            for seed, (prompt, settings) in enumerate(requests)
        ]
        outputs = {output.request_id: output for output in (manager.get_result() for _ in names)}
        return [outputs[name] for name in names]


def test_tokens_are_the_same(sampling, model):
    requests = list(zip(prompts(10, seed=3), [*SETTINGS.values()] * 2, strict=True))
    plain, ours = served(model, requests), served(sampling, requests)
    assert [output.generated_tokens for output in ours] == [output.generated_tokens for output in plain]
    for words, output in zip([*SETTINGS] * 2, ours, strict=True):
        assert words in output.reading
    assert {output.reading for output in plain} == {""}


def test_only_the_candidates_are_read(sampling, monkeypatch):
    requests = [(prompt, SETTINGS[words]) for prompt, words in zip(prompts(4), [*SETTINGS][:2] * 2, strict=True)]
    expected = [output.generated_tokens for output in served(sampling, requests)]
    run = type(sampling.loaded).run

    def without_logits(self, graph, *arguments):
        results = run(self, graph, *arguments)
        return results | ({"logits": torch.zeros_like(results["logits"])} if TOP_LOGITS in results else {})

    monkeypatch.setattr(type(sampling.loaded), "run", without_logits)
    assert [output.generated_tokens for output in served(sampling, requests)] == expected
