"""`LLM` and its engines against transformers: tokens, probabilities, filters, ends, adapters, beams."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import time

import pytest
import torch
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    LogitsProcessorList,
    MinPLogitsWarper,
    RepetitionPenaltyLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from optimum_neuron.errors import ConfigError, ModelError, ShapeError
from tests.raising import raises
from tests.tiny import NUM_BYTE_TOKENS, save_tiny, save_tokenizer

for package in ("llguidance", "peft", "pydantic"):
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed", allow_module_level=True)

from optimum_neuron.vllm_neuron import (  # noqa: E402
    LLM,
    AsyncLLMEngine,
    BeamSearchParams,
    LLMEngine,
    LoRARequest,
    RequestOutputKind,
    SamplingParams,
    StructuredOutputsParams,
)

OPTIONS = {"max_model_len": 64, "max_num_seqs": 3, "block_size": 8, "enable_lora": True, "max_lora_rank": 2}
PROMPTS = ["Hello, my name is", "The capital", "A", "The future of AI is bright"]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    folder = save_tiny(
        tmp_path_factory.mktemp("llm") / "tiny", "llama", vocab_size=NUM_BYTE_TOKENS, num_hidden_layers=2
    )
    save_tokenizer(folder)
    return folder


@pytest.fixture(scope="module")
def llm(checkpoint):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NEURON_CC_FLAGS", "-O1")
        patch.setenv("NEURON_CONTEXT_LENGTH_BUCKETS", "32")
        llm = LLM(str(checkpoint), **OPTIONS, max_loras=1, seed=5)
        yield llm
        llm.llm_engine.core.close()


@pytest.fixture(scope="module")
def reference(checkpoint):
    return AutoModelForCausalLM.from_pretrained(checkpoint).requires_grad_(False)


@pytest.fixture(scope="module")
def tokenizer(checkpoint):
    return AutoTokenizer.from_pretrained(checkpoint)


def greedy(reference, ids, number, **options):
    out = reference.generate(torch.tensor([ids]), max_new_tokens=number, do_sample=False, **options)
    return out[0, len(ids) :].tolist()


def test_greedy_tokens_are_those_of_transformers_in_the_order_of_prompts(llm, reference, tokenizer):
    outputs = llm.generate(PROMPTS, SamplingParams(temperature=0.0, max_tokens=8), use_tqdm=False)
    assert [output.prompt for output in outputs] == PROMPTS
    for output in outputs:
        (answer,) = output.outputs
        assert output.prompt_token_ids == tokenizer(output.prompt)["input_ids"] and output.finished
        assert answer.token_ids == greedy(reference, output.prompt_token_ids, 8)
        assert answer.text == tokenizer.decode(answer.token_ids, skip_special_tokens=True)
        assert (answer.finish_reason, answer.stop_reason, answer.logprobs) == ("length", None, None)


def test_prompts_are_texts_tokens_or_mappings(llm):
    params = SamplingParams(temperature=0, max_tokens=2)
    ids = llm.get_tokenizer().encode("Hello")
    forms = ["Hello", {"prompt": "Hello"}, {"prompt_token_ids": ids}, ids]
    outputs = llm.generate(forms, params, use_tqdm=False)
    assert len({tuple(output.outputs[0].token_ids) for output in outputs}) == 1
    (old,) = llm.generate(None, params, prompt_token_ids=ids, use_tqdm=False)
    assert old.outputs[0].token_ids == outputs[0].outputs[0].token_ids


def test_probabilities_are_log_softmax_of_transformers(llm, reference):
    params = SamplingParams(temperature=0, max_tokens=4, logprobs=3, prompt_logprobs=2)
    (output,) = llm.generate("Hello", params, use_tqdm=False)
    (answer,) = output.outputs
    ids = [*output.prompt_token_ids, *answer.token_ids]
    logprobs = reference(torch.tensor([ids])).logits[0].log_softmax(-1)
    num_prompt = len(output.prompt_token_ids)
    assert output.prompt_logprobs[0] is None
    rows = [*output.prompt_logprobs[1:], *answer.logprobs]
    for place, (token, row) in enumerate(zip(ids[1:], rows, strict=True)):
        for other, one in row.items():
            assert one.logprob == pytest.approx(float(logprobs[place, other]), abs=1e-4)
            assert one.rank == int((logprobs[place] > logprobs[place, other]).sum()) + 1
        assert token in row and len(row) in ((2, 3) if place < num_prompt - 1 else (3, 4))
    chosen = [logprobs[num_prompt - 1 + index, token] for index, token in enumerate(answer.token_ids)]
    assert answer.cumulative_logprob == pytest.approx(float(sum(chosen)), abs=1e-3)


SETTINGS = [
    (dict(temperature=0.7), [TemperatureLogitsWarper(0.7)]),
    (dict(temperature=1.3, top_k=5), [TemperatureLogitsWarper(1.3), TopKLogitsWarper(5)]),
    (dict(top_p=0.6), [TopPLogitsWarper(0.6)]),
    (dict(min_p=0.3), [MinPLogitsWarper(0.3)]),
    (dict(repetition_penalty=3.0), [RepetitionPenaltyLogitsProcessor(3.0)]),
]


@pytest.mark.parametrize(("options", "processors"), SETTINGS)
def test_sampled_tokens_are_those_that_transformers_leaves(llm, reference, options, processors):
    params = SamplingParams(**options, n=6, seed=3, max_tokens=6)
    (output,) = llm.generate("Hello", params, use_tqdm=False)
    assert [answer.index for answer in output.outputs] == list(range(6))
    for answer in output.outputs:
        ids = [*output.prompt_token_ids, *answer.token_ids]
        logits = reference(torch.tensor([ids])).logits[0]
        for place, token in enumerate(answer.token_ids, start=len(output.prompt_token_ids)):
            left = LogitsProcessorList(processors)(torch.tensor([ids[:place]]), logits[place - 1 : place].clone())
            assert left[0, token] > -torch.inf
    again = llm.generate("Hello", params, use_tqdm=False)[0]
    assert [one.token_ids for one in again.outputs] == [one.token_ids for one in output.outputs]
    assert len({tuple(one.token_ids) for one in output.outputs}) > 1


def test_answers_end_by_tokens_texts_and_lengths(llm, reference):
    plain = SamplingParams(temperature=0, max_tokens=8)
    (output,) = llm.generate("The capital", plain, use_tqdm=False)
    tokens, text = output.outputs[0].token_ids, output.outputs[0].text
    third = tokens[2]
    (ended,) = llm.generate("The capital", SamplingParams(temperature=0, stop_token_ids=[third, 32003]), use_tqdm=False)
    assert ended.outputs[0].token_ids == tokens[: tokens.index(third) + 1]
    assert (ended.outputs[0].finish_reason, ended.outputs[0].stop_reason) == ("stop", third)
    (longest,) = llm.generate("A", SamplingParams(temperature=0, max_tokens=None, ignore_eos=True), use_tqdm=False)
    assert len(longest.prompt_token_ids) + len(longest.outputs[0].token_ids) == 64
    stop = text[1]
    (cut,) = llm.generate("The capital", SamplingParams(temperature=0, max_tokens=8, stop=stop), use_tqdm=False)
    assert cut.outputs[0].text == text[: text.index(stop)] and cut.outputs[0].stop_reason == stop


def test_parameters_change_what_is_chosen(llm, reference, tokenizer):
    (plain,) = llm.generate("Hello", SamplingParams(temperature=0, max_tokens=3), use_tqdm=False)
    first = plain.outputs[0].token_ids[0]

    def tokens(**options):
        (output,) = llm.generate("Hello", SamplingParams(temperature=0, max_tokens=3, **options), use_tqdm=False)
        return output.outputs[0].token_ids

    assert tokens(logit_bias={70: 100.0}) == [70] * 3
    assert set(tokens(allowed_token_ids=[80, 81])) <= {80, 81}
    assert first not in tokens(bad_words=[tokenizer.decode([first])]) or tokenizer.decode([first]) == "\ufffd"
    assert tokens(truncate_prompt_tokens=2) == greedy(reference, plain.prompt_token_ids[-2:], 3)
    seen = []

    def ban(prompt, answer, logits):
        seen.append((list(prompt), list(answer)))
        logits[first] = -torch.inf
        return logits

    assert first not in tokens(logits_processors=[ban])
    assert seen[0] == (plain.prompt_token_ids, []) and len(seen[1][1]) == 1
    penalized = tokens(frequency_penalty=2.0, presence_penalty=2.0)
    assert len(penalized) == 3


def test_best_of_returns_the_most_probable_answers(llm):
    params = {"seed": 1, "max_tokens": 4}
    (every,) = llm.generate("Hello", SamplingParams(n=4, logprobs=0, **params), use_tqdm=False)
    (best,) = llm.generate("Hello", SamplingParams(n=2, best_of=4, **params), use_tqdm=False)
    ranked = sorted(every.outputs, key=lambda one: -one.cumulative_logprob)
    assert [one.token_ids for one in best.outputs] == [one.token_ids for one in ranked[:2]]
    assert [one.index for one in best.outputs] == [0, 1] and best.outputs[0].logprobs is None


def test_constraints_hold(llm):
    schema = {"type": "object", "properties": {"a": {"enum": [1, 2]}}, "required": ["a"], "additionalProperties": False}
    kinds = {"choice": ["yes", "no"], "regex": "[ab]{3}", "json": schema}
    for kind, value in kinds.items():
        params = SamplingParams(
            temperature=0, max_tokens=20, structured_outputs=StructuredOutputsParams(**{kind: value})
        )
        text = llm.generate("Q", params, use_tqdm=False)[0].outputs[0].text
        assert (
            text in kinds["choice"] if kind == "choice" else set(text) <= set("ab") or json.loads(text)["a"] in (1, 2)
        )


def test_chats_follow_the_template(llm, reference, tokenizer):
    messages = [{"role": "user", "content": [{"type": "text", "text": "Hi"}]}]
    plain = [{"role": "user", "content": "Hi"}]
    params = SamplingParams(temperature=0, max_tokens=4)
    one, two = llm.chat([messages, plain], params, use_tqdm=False)
    text = tokenizer.apply_chat_template(plain, tokenize=False, add_generation_prompt=True)
    assert one.prompt == two.prompt == text
    assert one.outputs[0].token_ids == greedy(reference, tokenizer.encode(text, add_special_tokens=False), 4)
    (own,) = llm.chat(plain, params, chat_template="{{ messages[0]['content'] }}!", use_tqdm=False)
    assert own.prompt == "Hi!"


@pytest.fixture(scope="module")
def adapters(checkpoint, reference, tmp_path_factory):
    """Two adapters, and the merged models."""
    from peft import LoraConfig, get_peft_model

    found = {}
    for number, name in enumerate(("one", "two")):
        torch.manual_seed(number)
        model = AutoModelForCausalLM.from_pretrained(checkpoint)
        model = get_peft_model(model, LoraConfig(r=2, target_modules=["q_proj", "v_proj"], init_lora_weights=False))
        folder = tmp_path_factory.mktemp("lora") / name
        model.save_pretrained(folder)
        found[name] = (folder, model.merge_and_unload())
    return found


def test_adapters_take_turns_in_the_places_that_there_are(llm, reference, adapters):
    requests = [None, *(LoRARequest(name, 1 + number, str(adapters[name][0])) for number, name in enumerate(adapters))]
    models = [reference, *(merged for _, merged in adapters.values())]
    outputs = llm.generate(
        ["Hello"] * 6, SamplingParams(temperature=0, max_tokens=6), lora_request=requests * 2, use_tqdm=False
    )
    for output, request, model in zip(outputs, requests * 2, models * 2, strict=True):
        assert output.outputs[0].token_ids == greedy(model, output.prompt_token_ids, 6)
        assert output.lora_request == request == output.outputs[0].lora_request


def test_beams_are_those_of_transformers(llm, reference):
    (output,) = llm.beam_search(["Hello"], BeamSearchParams(beam_width=3, max_tokens=5, ignore_eos=True))
    ids = torch.tensor([llm.get_tokenizer().encode("Hello")])
    options = {"num_beams": 3, "num_return_sequences": 3, "do_sample": False, "length_penalty": 0.0}
    expected = reference.generate(ids, max_new_tokens=5, eos_token_id=None, pad_token_id=0, **options)
    assert [sequence.tokens for sequence in output.sequences] == expected.tolist()


def test_engine_steps_and_aborts(llm, reference):
    engine = llm.llm_engine
    for name, prompt in enumerate(PROMPTS):
        engine.add_request(str(name), prompt, SamplingParams(temperature=0, max_tokens=5))
    with raises(ConfigError, request_id="0"):
        engine.add_request("0", "again")
    engine.abort_request(["3"])
    engine.add_request("3", "again", SamplingParams(temperature=0, max_tokens=1))
    seen = {}
    while engine.has_unfinished_requests():
        for output in engine.step():
            before = seen.get(output.request_id)
            assert before is None or output.outputs[0].token_ids[: len(before)] == before
            seen[output.request_id] = output.outputs[0].token_ids
    assert set(seen) == {"0", "1", "2", "3"} and len(seen["3"]) == 1 and engine.step() == []
    for name in ("0", "1", "2"):
        assert seen[name] == greedy(reference, llm.get_tokenizer().encode(PROMPTS[int(name)]), 5)


@pytest.mark.parametrize(
    ("engine", "options"),
    [
        (LLMEngine, {"usage_context": "LLM_CLASS", "stat_loggers": {}, "enable_multiprocessing": True}),
        (AsyncLLMEngine, {"start_engine_loop": False, "usage_context": "API_SERVER", "stat_loggers": []}),
    ],
    ids=["steps", "async"],
)
def test_arguments_of_engines_without_effect_are_named(monkeypatch, caplog, engine, options):
    monkeypatch.setattr("optimum_neuron.vllm_neuron.engine.Core", lambda args: args)
    with caplog.at_level("INFO", "optimum_neuron"):
        engine.from_engine_args("args")
        assert not caplog.messages
        assert engine.from_engine_args("args", *options.values()).core == "args"
    (line,) = caplog.messages
    assert all(name in line for name in options)
    with pytest.raises(TypeError, match="usage"):
        engine.from_engine_args("args", usage="x")


def test_async_engine_streams_deltas(llm):
    engine = object.__new__(AsyncLLMEngine)
    engine.core, engine._running = llm.llm_engine.core, {}

    async def read(kind):
        params = SamplingParams(temperature=0, max_tokens=5, output_kind=kind)
        return [output async for output in engine.generate("Hello", params, "a")]

    deltas, texts = asyncio.run(read(RequestOutputKind.DELTA)), asyncio.run(read(RequestOutputKind.CUMULATIVE))
    (final,) = asyncio.run(read(RequestOutputKind.FINAL_ONLY))
    assert len(deltas) == len(texts) == 5 and [one.finished for one in deltas] == [False] * 4 + [True]
    assert [token for one in deltas for token in one.outputs[0].token_ids] == final.outputs[0].token_ids
    assert "".join(one.outputs[0].text for one in deltas) == final.outputs[0].text
    assert texts[-1].outputs[0].token_ids == final.outputs[0].token_ids
    with raises(ShapeError, limit=64):
        asyncio.run(engine.generate("x" * 200, SamplingParams(), "b").__anext__())


@pytest.mark.parametrize("kind", list(RequestOutputKind), ids=lambda kind: kind.name)
def test_an_aborted_request_ends_with_what_was_said(llm, reference, kind):
    engine = object.__new__(AsyncLLMEngine)
    engine.core, engine._running = llm.llm_engine.core, {}

    async def run():
        loop, reached = asyncio.get_running_loop(), asyncio.Event()

        def slow(ids, row):
            if len(ids) == 5:
                loop.call_soon_threadsafe(reached.set)
            time.sleep(0.01 * (len(ids) >= 5))
            return row

        options = {"temperature": 0, "max_tokens": 50, "ignore_eos": True, "logits_processors": [slow]}

        async def read():
            return [out async for out in engine.generate("Hello", SamplingParams(output_kind=kind, **options), "a")]

        task = asyncio.ensure_future(read())
        async with asyncio.timeout(60):
            await reached.wait()
        with raises(ConfigError, request_id="a"):
            await engine.generate("Hello", SamplingParams(**options), "a").__anext__()
        await engine.abort(["a", "b"])
        return await task

    *before, last = asyncio.run(run())
    tokens = last.outputs[0].token_ids
    if kind is RequestOutputKind.DELTA:
        assert not tokens and not last.outputs[0].text
        tokens = [token for one in before for token in one.outputs[0].token_ids]
    assert last.finished and last.outputs[0].finish_reason == "abort" and not any(one.finished for one in before)
    assert 0 < len(tokens) < 50
    ids = llm.get_tokenizer().encode("Hello")
    assert tokens == greedy(reference, ids, len(tokens), eos_token_id=None, pad_token_id=0)


def test_wrong_requests_are_errors_before_any_runs(llm):
    def run(*args, **options):
        llm.generate(*args, use_tqdm=False, **options)

    for wrong in ("hello", ["hello"], [{"content": "hello"}]):
        with raises(ConfigError, option="messages"):
            llm.chat(wrong, chat_template="{{ messages }}", use_tqdm=False)
    with raises(ShapeError, size=70, limit=64):
        run([list(range(3, 73))], SamplingParams())
    with raises(ConfigError, option="sampling_params", num_prompts=2):
        run(["a", "b"], [SamplingParams()] * 3)
    with raises(ConfigError, option="logprobs", limit=20):
        run("a", SamplingParams(logprobs=21))
    with raises(ConfigError, option="prompt_embeds"):
        run({"prompt_embeds": torch.zeros(1, 4)})
    with raises(ConfigError, option="lora_path"):
        run("a", lora_request=LoRARequest("none", 3, "/no/such/folder"))
    params = SamplingParams()
    params.top_p = 2.0
    with raises(ConfigError, option="top_p"):
        run("a", params)
    with raises(ConfigError, option="task"):
        llm.embed(["a"])


@pytest.mark.parametrize(
    ("options", "kind", "details"),
    [
        ({"tensor_parallel_size": 8}, ConfigError, {"option": "tensor_parallel_size", "num_heads": 4}),
        ({"tensor_parallel_size": 3}, ConfigError, {"option": "tensor_parallel_size"}),
        ({"quantization": "awq"}, ConfigError, {"option": "quantization"}),
        ({"device": "cuda"}, ConfigError, {"option": "device"}),
        ({"max_model_len": 4096}, ConfigError, {"option": "max_model_len"}),
        ({"override_neuron_config": {"seq_len": 4096}}, ConfigError, {"option": "seq_len"}),
        ({"max_num_seqs": 2**40}, ConfigError, {"option": "max_num_seqs"}),
        ({"override_neuron_config": {"token_generation_buckets": [32, 16]}}, ConfigError, {}),
        (
            {"max_model_len": 64, "override_neuron_config": {"context_encoding_buckets": [128]}},
            ConfigError,
            {"option": "context_encoding_buckets"},
        ),
        (
            {"max_model_len": 64, "speculative_config": {"method": "ngram", "num_speculative_tokens": 100}},
            ConfigError,
            {"option": "num_speculative_tokens"},
        ),
        ({"quantization": "int4", "override_neuron_config": {"quantized": True}}, ConfigError, {}),
        (
            {"max_model_len": 64, "block_size": 8, "num_gpu_blocks_override": 4},
            ConfigError,
            {"option": "num_gpu_blocks_override"},
        ),
        ({"rope_theta": 1.0}, ConfigError, {"option": "rope_theta"}),
        ({"speculative_config": {"method": "mtp"}}, ConfigError, {}),
        ({"dtype": "int3"}, ConfigError, {}),
    ],
)
def test_wrong_engines_are_errors_before_a_compile(checkpoint, monkeypatch, options, kind, details):
    monkeypatch.setattr("optimum_neuron.exporters.build.compile_source", None)  # a compile would fail
    with raises(kind, **details):
        LLM(str(checkpoint), **options)


def test_unknown_models_and_keywords_are_errors(checkpoint):
    with pytest.raises(ModelError):
        LLM("./no/such/folder")
    with pytest.raises(TypeError, match="max_model_len"):
        LLM(str(checkpoint), max_model_length=4)
    with pytest.raises(TypeError, match="temperature"):
        SamplingParams(temprature=1.0)


def test_adapters_need_to_be_enabled(checkpoint):
    from optimum_neuron.vllm_neuron.adapters import AdapterCache

    with raises(ConfigError, option="enable_lora"):
        AdapterCache(None, 0, folders={}).check(LoRARequest("a", 1, "folder"))
