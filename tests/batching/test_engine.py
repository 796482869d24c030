"""What a request gets does not depend on what runs beside it; failures stay with one request; nothing leaks."""

import random
import time

import pytest
import torch
from transformers import GenerationConfig

from optimum_neuron.batching import BatchingManager
from optimum_neuron.errors import ConfigError, QueueFullError, ShapeError
from tests.raising import raises
from tests.tiny import NUM_BYTE_TOKENS

SETTINGS = (
    {"do_sample": False},
    {"do_sample": True, "temperature": 0.7, "top_k": 20},
    {"do_sample": True, "top_p": 0.8, "repetition_penalty": 1.3},
    {"do_sample": True, "min_p": 0.05, "min_new_tokens": 4},
    {"do_sample": False, "no_repeat_ngram_size": 2, "bad_words_ids": [[5]]},
    {"do_sample": True, "typical_p": 0.9, "sequence_bias": [[[7], 2.0]]},
)


def prompts(number: int, *, seed: int = 0, longest: int = 33) -> list[list[int]]:
    draw = random.Random(seed)
    shared = [draw.randrange(3, NUM_BYTE_TOKENS) for _ in range(32)]
    made = []
    for _ in range(number):
        length = draw.randint(1, longest)
        begin = draw.choice((0, 0, min(16, length - 1)))
        made.append(shared[:begin] + [draw.randrange(3, NUM_BYTE_TOKENS) for _ in range(length - begin)])
    return made


def serve(manager: BatchingManager, requests: list[tuple[list[int], dict]]) -> list[tuple[list[int], list[float]]]:
    """Answer requests; return tokens and their probabilities."""
    names = [manager.add_request(prompt, **settings) for prompt, settings in requests]
    outputs = {output.request_id: output for output in (manager.get_result() for _ in names)}
    assert [outputs[name].error for name in names] == [None] * len(names)
    return [(outputs[name].generated_tokens, outputs[name].logprobs) for name in names]


@pytest.fixture
def manager(model):
    from transformers import ContinuousBatchingConfig

    with model.continuous_batching_context_manager(
        continuous_batching_config=ContinuousBatchingConfig(return_logprobs=True)
    ) as manager:
        yield manager
    pool = manager.engine.pool
    assert (pool.num_used, pool.num_free, manager.engine.has_work) == (0, pool.num_usable, False)


def test_tokens_and_probabilities_are_those_of_a_request_alone(manager):
    requests = [
        (prompt, SETTINGS[number % len(SETTINGS)] | {"seed": number, "max_new_tokens": 5 + number % 11})
        for number, prompt in enumerate(prompts(24))
    ]
    alone = [serve(manager, [request])[0] for request in requests]
    before = manager.engine.counters.shared_tokens_total
    assert serve(manager, requests) == alone
    assert manager.engine.counters.preemptions_total > 0
    assert manager.engine.counters.shared_tokens_total > before


def test_seconds_are_parts_of_the_time_that_passes(manager):
    counters, started = manager.engine.counters, time.perf_counter()
    serve(manager, [(prompt, {"do_sample": True, "max_new_tokens": 3}) for prompt in prompts(3)])
    parts = ("scheduling", "sampling", "draft", "chunk", "step")
    seconds = [getattr(counters, f"{part}_seconds_total") for part in parts]
    assert min(seconds) > 0 and sum(seconds) < time.perf_counter() - started


def test_tokens_are_those_of_generate(model, manager):
    for number, prompt in enumerate(prompts(6, seed=1)):
        settings = SETTINGS[number % len(SETTINGS)] | {"max_new_tokens": 9}
        ((tokens, logprobs),) = serve(manager, [(prompt, settings | {"seed": number})])
        torch.manual_seed(number)
        wanted = {"return_dict_in_generate": True, "output_scores": True}
        result = model.generate(torch.tensor([prompt]), **settings, **wanted)
        assert result.sequences[0, len(prompt) :].tolist() == tokens
        scores = torch.cat(result.scores).log_softmax(-1)
        assert logprobs == pytest.approx(scores[range(len(tokens)), tokens].tolist(), abs=1e-4)


def test_a_processor_that_raises_fails_its_request_only(manager):
    def broken(input_ids, scores):
        if input_ids.shape[1] == 8:
            raise ArithmeticError("broken")
        return scores

    (good, bad) = ([3, 4, 5], [6, 7, 8, 9, 10, 11])
    alone = serve(manager, [(good, {"max_new_tokens": 12})])
    names = [manager.add_request(good, max_new_tokens=12)]
    names += [manager.add_request(bad, max_new_tokens=12, logits_processor=[broken])]
    outputs = {output.request_id: output for output in (manager.get_result(), manager.get_result())}
    assert outputs[names[0]].generated_tokens == alone[0][0]
    assert (outputs[names[1]].error, len(outputs[names[1]].generated_tokens)) == ("broken", 2)


def test_cancelled_requests_leave_the_others_alone(manager):
    draw = random.Random(3)
    requests = [(prompt, {"max_new_tokens": 12, "streaming": True}) for prompt in prompts(40, seed=3)]
    names = {manager.add_request(prompt, **settings): prompt for prompt, settings in requests}
    over: dict[str, list[int]] = {}
    while len(over) < len(names):
        output = manager.get_result()
        if draw.random() < 0.1:
            manager.cancel_request(draw.choice(list(names)))
        if output.is_finished():
            if output.error is None:
                over[output.request_id] = output.generated_tokens
            else:
                assert "cancelled" in output.error
                over[output.request_id] = []
    counters = manager.engine.counters
    assert counters.requests_cancelled_total > 0
    assert counters.requests_cancelled_total + counters.requests_finished_total == len(names)
    sample = [name for name in names if over[name]][::5]
    alone = serve(manager, [(names[name], {"max_new_tokens": 12}) for name in sample])
    assert [tokens for tokens, _ in alone] == [over[name] for name in sample]


def test_siblings_have_streams_of_their_own(model):
    outputs = model.generate_batch([[3, 4], [5]], num_return_sequences=2, do_sample=True, max_new_tokens=8, seed=0)
    assert list(outputs) == ["req_0", "req_0__child#0", "req_1", "req_1__child#0"]
    assert len({tuple(output.generated_tokens) for output in outputs.values()}) > 1
    config = GenerationConfig(num_return_sequences=2, do_sample=True, max_new_tokens=2)
    assert list(model.generate_batch([[3]], generation_config=config)) == ["req_0", "req_0__child#0"]


def test_an_answer_that_is_cut_is_a_warning(model, caplog):
    manager = model.init_continuous_batching()
    sizes = {manager.add_request([3, 4, 5], max_new_tokens=size, do_sample=False): size for size in (45, 46)}
    manager.start()
    assert {len(manager.get_result(name).generated_tokens) for name in sizes} == {45}
    manager.destroy()
    (message,) = [record.getMessage() for record in caplog.records if record.name.startswith("optimum_neuron")]
    assert "46" in message and "45" in message


def test_wrong_requests_are_refused(manager):
    for settings, error in (
        ({"num_beams": 2}, ConfigError),
        ({"temprature": 1.0}, ConfigError),
        ({"guidance_scale": 2.0}, ConfigError),
        ({"stop_strings": "x"}, ConfigError),
        ({"max_new_tokens": 0}, ConfigError),
    ):
        with pytest.raises(error):
            manager.add_request([3], **settings)
    for ids, wrong in (([], []), ([3, NUM_BYTE_TOKENS], [NUM_BYTE_TOKENS]), ([-1], [-1])):
        with raises(ShapeError, ids=wrong):
            manager.add_request(ids)
    with raises(ShapeError, size=48, limit=47):
        manager.add_request([3] * 48)


def test_a_full_queue_refuses(model, monkeypatch):
    from transformers import ContinuousBatchingConfig

    manager = model.init_continuous_batching(continuous_batching_config=ContinuousBatchingConfig(max_queue_size=2))
    manager.add_requests([[3], [4]], max_new_tokens=2)
    with pytest.raises(QueueFullError):
        manager.add_request([5])
    manager.start()
    assert manager.add_request([5], max_new_tokens=2) is not None
    manager.stop()
    assert sum(1 for _ in manager) == 3
    assert manager.add_request([5]) is None
    manager.destroy()


def test_sizes_of_transformers_settings_are_those_of_the_program(model):
    from transformers import ContinuousBatchingConfig

    for wrong in ({"num_blocks": 99}, {"page_size": 16}, {"scheduler_type": "prefill_first"}):
        with pytest.raises(ConfigError):
            model.init_continuous_batching(continuous_batching_config=ContinuousBatchingConfig(**wrong))
    manager = model.init_continuous_batching(
        continuous_batching_config=ContinuousBatchingConfig(num_blocks=10, page_size=8, use_cuda_graph=True)
    )
    manager.destroy()
