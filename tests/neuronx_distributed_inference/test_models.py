"""The classes of NxD Inference against transformers: tokens, sequences that begin and end, accuracy, the command."""

import copy
import logging
import sys

import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, AutoTokenizer

from optimum_neuron.errors import (
    ArtifactError,
    ConfigError,
    LogitMatchingError,
    ModelError,
    NotExportedError,
    ShapeError,
    WeightsError,
)
from optimum_neuron.neuronx_distributed_inference import (
    FusedSpecNeuronConfig,
    HuggingFaceGenerationAdapter,
    LoraServingConfig,
    NeuronConfig,
    OnDeviceSamplingConfig,
    accuracy,
    benchmark,
    demo,
    load_pretrained_config,
    logits,
    state_dicts,
)
from optimum_neuron.neuronx_distributed_inference.families import (
    LlamaInferenceConfig,
    NeuronLlamaForCausalLM,
    NeuronQwen2ForCausalLM,
)
from optimum_neuron.neuronx_distributed_inference.sampling import prepare_sampling_params
from tests import eagle, tiny
from tests.raising import raises

OPTIONS = {"batch_size": 2, "seq_len": 48, "max_context_length": 16, "torch_dtype": torch.float32}
SAMPLING = OnDeviceSamplingConfig(dynamic=True, deterministic=True)


@pytest.fixture(scope="module", autouse=True)
def quick_compiles():
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NEURON_CC_FLAGS", "-O1")
        yield


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    folder = tmp_path_factory.mktemp("llama")
    tiny.save_tokenizer(folder)
    return tiny.save_tiny(folder, "llama", num_hidden_layers=2, vocab_size=tiny.NUM_BYTE_TOKENS)


@pytest.fixture(scope="module")
def reference(checkpoint):
    return AutoModelForCausalLM.from_pretrained(checkpoint).eval()


def config_of(checkpoint, **options):
    neuron_config = NeuronConfig(**{**OPTIONS, **options})
    return LlamaInferenceConfig(neuron_config, load_config=load_pretrained_config(checkpoint))


@pytest.fixture(scope="module")
def compiled(checkpoint, tmp_path_factory):
    folder = tmp_path_factory.mktemp("compiled")
    config = config_of(checkpoint, on_device_sampling_config=SAMPLING, output_logits=True)
    NeuronLlamaForCausalLM(checkpoint, config).compile(folder)
    return folder


@pytest.fixture(scope="module")
def model(compiled):
    model = NeuronLlamaForCausalLM(compiled)
    model.load(compiled)
    yield model
    model.close()


def prompts(num_rows, num_columns, seed=0):
    return torch.randint(
        3, tiny.NUM_BYTE_TOKENS, (num_rows, num_columns), generator=torch.Generator().manual_seed(seed)
    )


def answer(reference, ids, num_new):
    """Greedy tokens of transformers for one prompt."""
    mask = torch.ones_like(ids[None])
    return reference.generate(
        ids[None], attention_mask=mask, do_sample=False, max_new_tokens=num_new, eos_token_id=-1, pad_token_id=0
    )[0, len(ids) :].tolist()


@pytest.mark.parametrize("side", ["left", "right"])
def test_greedy_tokens_are_those_of_transformers(model, reference, side):
    ids, mask = prompts(2, 9), torch.ones(2, 9, dtype=torch.long)
    padding = slice(0, 4) if side == "left" else slice(5, 9)
    ids[1, padding], mask[1, padding] = 0, 0
    tokens = HuggingFaceGenerationAdapter(model).generate(
        ids, attention_mask=mask, max_length=30, eos_token_id=-1, pad_token_id=0,
        sampling_params=prepare_sampling_params(2),
    )  # fmt: skip
    for row in range(2):
        assert tokens[row, 9:].tolist() == answer(reference, ids[row][mask[row].bool()], 21)


@pytest.mark.parametrize("side", ["left", "right"])
def test_the_reference_on_the_cpu_skips_padding_too(checkpoint, reference, side):
    model = NeuronLlamaForCausalLM(checkpoint, config_of(checkpoint, on_cpu=True))
    model.to_cpu()
    ids, mask = prompts(2, 9), torch.ones(2, 9, dtype=torch.long)
    padding = slice(0, 4) if side == "left" else slice(5, 9)
    ids[1, padding], mask[1, padding] = 0, 0
    options = {"attention_mask": mask, "max_new_tokens": 6, "do_sample": False, "eos_token_id": -1, "pad_token_id": 0}
    tokens = HuggingFaceGenerationAdapter(model).generate(ids, **options)
    assert torch.equal(tokens[:, :9], ids)
    lengths = mask.sum(1)
    model.reset()
    picked = [model(ids, mask).logits[:, -1].argmax(-1)]
    for step in range(2):
        positions = (lengths + step)[:, None]
        picked.append(model(picked[-1][:, None], position_ids=positions).logits[:, -1].argmax(-1))
    for row in range(2):
        expected = answer(reference, ids[row][mask[row].bool()], 6)
        assert tokens[row, 9:].tolist() == expected and torch.stack(picked, 1)[row].tolist() == expected[:3]
    with raises(ShapeError, position=20):
        model(ids[:, :1], position_ids=torch.full((2, 1), 20))
    with raises(ConfigError, option="adapter_ids"):
        model(ids, mask, adapter_ids=["a", "b"])


@torch.no_grad()
@pytest.mark.parametrize(
    ("dtype", "kind"), [("int8", "per_channel_symmetric"), ("f8e4m3", "per_tensor_symmetric")], ids=str
)
def test_quantized_checkpoints_have_their_own_numbers(checkpoint, reference, tmp_path, dtype, kind):
    path = tmp_path / "model_quant.pt"
    if dtype == "f8e4m3":
        path = tmp_path / "quantized"
        path.mkdir()
    options = {"quantized": True, "quantized_checkpoints_path": str(path)}
    options |= {"quantization_dtype": dtype, "quantization_type": kind}
    NeuronLlamaForCausalLM.save_quantized_state_dict(checkpoint, config_of(checkpoint, **options))
    written = state_dicts.load_state_dict(path) if path.is_dir() else torch.load(path)
    dequantized = copy.deepcopy(reference)
    state = dequantized.state_dict()
    if dtype == "f8e4m3":  # a head in fp8 would be rounded to int8
        written["lm_head.weight"] = state["lm_head.weight"]
        del written["lm_head.scale"]
    for name in [name for name in written if name.endswith(".scale")]:
        weight = name.replace(".scale", ".weight")
        written[name] = written[name] * 1.5  # numbers that no quantization of the checkpoint finds
        state[weight] = written[weight].float() * written[name]
    dequantized.load_state_dict(state)
    (state_dicts.save_state_dict_safetensors if path.is_dir() else torch.save)(written, path)
    model = NeuronLlamaForCausalLM(checkpoint, config_of(checkpoint, **options))
    model.compile(tmp_path / "compiled")
    model = NeuronLlamaForCausalLM(checkpoint, config_of(checkpoint, **options))
    model.load(tmp_path / "compiled")
    ids = prompts(2, 9)
    torch.testing.assert_close(model(ids).logits[:, -1], dequantized(ids).logits[:, -1], atol=2e-4, rtol=2e-4)
    model.close()
    with raises(ConfigError, option="quantization_dtype"):
        other = "f8e4m3" if dtype == "int8" else "int8"
        config = config_of(checkpoint, **options | {"quantization_dtype": other})
        NeuronLlamaForCausalLM(checkpoint, config).compile(tmp_path / "other")


def test_rows_have_sampling_parameters_of_their_own(model, reference):
    ids = prompts(2, 9)
    greedy = answer(reference, ids[0], 12)
    params = prepare_sampling_params(2, top_k=[1, 9], temperature=[1.0, 3.0])
    options = {"attention_mask": torch.ones_like(ids), "max_new_tokens": 12, "eos_token_id": -1, "pad_token_id": 0}
    adapter = HuggingFaceGenerationAdapter(model)
    tokens = adapter.generate(ids, sampling_params=params, **options)[:, 9:]
    assert tokens[0].tolist() == greedy
    # `deterministic` takes the token at half of the cumulated probability of the 9 likeliest.
    with torch.no_grad():
        logits, likeliest = reference(ids[1:]).logits[0, -1].topk(9)
    place = int(((logits / 3.0).softmax(-1).cumsum(-1) < 0.5).sum())
    assert tokens[1, 0] == likeliest[place] and place > 0


def test_without_parameters_the_settings_say_how_tokens_are_picked(model, reference):
    ids = prompts(2, 9)
    options = {"attention_mask": torch.ones_like(ids), "eos_token_id": -1, "pad_token_id": 0, "max_new_tokens": 6}
    adapter = HuggingFaceGenerationAdapter(model)
    greedy = adapter.generate(ids, do_sample=False, **options)
    assert greedy[:, 9:].tolist() == [answer(reference, row, 6) for row in ids]
    options["attention_mask"] = options["attention_mask"][:1]
    drawn = adapter.generate(ids[:1], do_sample=True, top_k=9, temperature=3.0, num_return_sequences=2, **options)
    assert len(drawn) == 2 and torch.equal(drawn[0], drawn[1]) and not torch.equal(drawn[:1], greedy[:1])


def test_answers_that_do_not_fit_the_compiled_model_are_refused(model):
    adapter = HuggingFaceGenerationAdapter(model)
    for rows, options in ((3, {}), (1, {"num_beams": 9}), (2, {"num_return_sequences": 2})):
        with raises(ShapeError, batch_size=2):
            adapter.generate(prompts(rows, 9), pad_token_id=0, **options)
    most = model.neuron_config.max_length
    for option, value in (("max_length", most + 1), ("max_new_tokens", most - 8)):
        with raises(ConfigError, option=option, value=value, max_length=most):
            adapter.generate(prompts(1, 9), pad_token_id=0, **{option: value})


def test_sequences_begin_and_end_one_by_one(model, reference):
    model.reset()
    first, second = prompts(1, 7)[0], prompts(1, 5, seed=1)[0]
    expected = {0: answer(reference, first, 6), 1: answer(reference, second, 4)}
    made = {0: [model(first[None]).tokens.item()], 1: []}

    def step(*rows):
        starts = {0: len(first), 1: len(second)}
        ids = torch.tensor([[made[row][-1]] for row in rows])
        positions = torch.tensor([[starts[row] + len(made[row]) - 1] for row in rows])
        output = model(ids, position_ids=positions, seq_ids=torch.tensor(rows))
        assert torch.equal(output.logits[:, -1].argmax(-1), output.tokens)
        for row, token in zip(rows, output.tokens.tolist(), strict=True):
            made[row].append(token)

    step(0)
    padded = torch.cat([second, torch.zeros(3, dtype=torch.long)])[None]
    positions = torch.tensor([[0, 1, 2, 3, 4, 1, 1, 1]])  # as NxD Inference numbers padding
    made[1].append(model(padded, position_ids=positions, seq_ids=torch.tensor([1])).tokens.item())
    step(0, 1)
    step(1, 0)
    step(0)
    step(1)
    step(0)
    assert made == expected
    model.reset()
    assert not model.kv_cache_populated


def test_accuracy_and_its_report(model, reference, checkpoint, capsys, caplog):
    ids = prompts(2, 8)
    expected = accuracy.generate_expected_logits(model, ids, torch.ones_like(ids), num_tokens=6)
    with torch.no_grad():
        torch.testing.assert_close(expected[0], reference(ids).logits[:, -1], atol=1e-4, rtol=1e-4)
    steps = logits.check_accuracy_logits_v2(model, expected, ids, torch.ones_like(ids))
    assert len(steps) == 6 and max(step.errors[None] for step in steps) < 1e-4
    caplog.set_level(logging.INFO)
    other, tokenizer = prompts(2, 8, seed=1), AutoTokenizer.from_pretrained(checkpoint)
    mask, settings = torch.ones_like(ids), {"num_tokens": 2, "tokenizer": tokenizer}
    more = accuracy.generate_expected_logits(model, ids, mask, **settings, additional_input_args={"input_ids": other})
    with torch.no_grad():
        torch.testing.assert_close(more[0], reference(other).logits[:, -1], atol=1e-4, rtol=1e-4)
    assert str(tokenizer.batch_decode(more.argmax(-1).T, skip_special_tokens=True)) in caplog.text
    expected[3, 1] += torch.linspace(0, 1, expected.shape[-1])
    with raises(LogitMatchingError, divergence_index=3) as caught:
        logits.check_accuracy_logits_v2(model, expected, ids, torch.ones_like(ids))
    passed = [[token["passed"] for token in row] for row in caught.value.results]
    assert passed[0] == [True] * 6 and passed[1][:3] == [True] * 3 and not passed[1][3]
    assert caught.value.get_divergence_index() == max(index for index, one in enumerate(passed[1]) if not one)
    with raises(ConfigError, options=["pixel_values"]):
        others = {"additional_input_args": {"pixel_values": torch.ones(1)}}
        logits.check_accuracy_logits_v2(model, expected, ids, torch.ones_like(ids), **others)
    assert "Logits of 6 steps" in capsys.readouterr().out


def test_texts_are_answered_without_a_token_for_padding(model, reference, checkpoint):
    tokenizer = AutoTokenizer.from_pretrained(checkpoint)
    tokenizer.pad_token = None
    settings = {"max_new_tokens": 5, "do_sample": False, "eos_token_id": -1, "pad_token_id": 0}
    texts = ["a tale", "another"]
    tokens, _ = accuracy.get_generate_outputs(model, texts, tokenizer, **settings)
    ids = [torch.tensor(tokenizer(text).input_ids) for text in texts]
    expected = [answer(reference, row, 5) for row in ids]
    assert tokens[:, -5:].tolist() == expected
    same, _ = accuracy.get_generate_outputs_from_token_ids(model, [row.tolist() for row in ids], tokenizer, **settings)
    assert same[:, -5:].tolist() == expected
    of_reference, _ = accuracy.get_generate_outputs(reference, texts, tokenizer, is_hf=True, **settings)
    assert of_reference[:, -5:].tolist() == expected
    for option, value in (("device", "cpu"), ("input_capture_hook", print)):
        with raises(ConfigError, option=option):
            accuracy.get_generate_outputs(model, texts, tokenizer, **{option: value})


def test_benchmark_keeps_the_clocks_apart(model, tmp_path):
    report = benchmark.benchmark_sampling(model, num_runs=2, benchmark_report_path=tmp_path / "report.json")
    names = {"e2e_model", "context_encoding_model", "token_generation_model", "simulated_device"}
    assert set(report) == names and (tmp_path / "report.json").is_file()
    host = report["token_generation_model"]
    assert 0 < host["latency_ms_p50"] <= host["latency_ms_p99"] <= host["latency_ms_p100"]
    assert report["simulated_device"]["instance"] == "inf2.xlarge" and report["simulated_device"]["tpot_ms"] > 0
    for target in ("prompt", "speculation"):
        with raises(ConfigError, option="target"):
            benchmark.benchmark_sampling(model, target=target)


def test_the_command_checks_and_generates(checkpoint, compiled, reference, monkeypatch, capsys):
    words = ["--model-type", "llama", "--task-type", "causal-lm", "run", "--model-path", checkpoint]
    words += ["--compiled-model-path", compiled, "--skip-compile", "--prompt", "a tale", "--prompt", "another"]
    words += ["--batch-size", 2, "--seq-len", 48, "--max-context-length", 16, "--torch-dtype", "float32"]
    words += ["--on-device-sampling", "--dynamic", "--output-logits", "--num-tokens-to-check", 5, "--top-k", 1]
    for mode in ("token-matching", "logit-matching"):
        monkeypatch.setattr(sys, "argv", ["inference_demo", *map(str, words), "--check-accuracy-mode", mode])
        assert demo.main() == 0
    shown = capsys.readouterr().out
    for line in ("The 5 tokens of 2 rows are the expected ones.", "Logits of 5 steps", "Output 1: "):
        assert line in shown
    wrong = ["inference_demo", *map(str, words), "--tp-degree", "64"]
    monkeypatch.setattr(sys, "argv", wrong)
    assert demo.main() == 1 and "tp_degree=64" in capsys.readouterr().err


@pytest.mark.full(days=4)
def test_a_draft_changes_no_token(checkpoint, reference, tmp_path):
    small = tiny.save_tiny(tmp_path / "draft", "llama", num_hidden_layers=1, vocab_size=tiny.NUM_BYTE_TOKENS, seed=1)
    options = {"batch_size": 2, "speculation_length": 3, "enable_fused_speculation": True}
    config = config_of(checkpoint, **options)
    config.fused_spec_config = FusedSpecNeuronConfig(
        None, config_of(small, batch_size=1), str(small), NeuronLlamaForCausalLM
    )
    model = NeuronLlamaForCausalLM(checkpoint, config)
    model.compile(tmp_path / "both")
    model.load(tmp_path / "both")
    ids, mask, adapter = prompts(2, 6), torch.ones(2, 6, dtype=torch.long), HuggingFaceGenerationAdapter(model)
    ids[1, :2] = mask[1, :2] = 0
    options = {"attention_mask": mask, "max_new_tokens": 10, "eos_token_id": -1, "pad_token_id": 0}
    tokens = adapter.generate(ids, do_sample=False, **options)
    for row, start in enumerate((0, 2)):
        assert tokens[row, 6:].tolist() == answer(reference, ids[row, start:], 10)
    assert model.compiled.last_speculation.num_candidates > 0
    params = prepare_sampling_params(2, top_k=[1, 1], temperature=[0.5, 2.0])
    assert torch.equal(adapter.generate(ids, sampling_params=params, **options), tokens)
    with raises(ShapeError, num_params=3):
        adapter.generate(ids, sampling_params=prepare_sampling_params(3), **options)
    with raises(ConfigError, option="return_dict_in_generate"):
        adapter.generate(ids, return_dict_in_generate=True, **options)
    model.close()


@pytest.mark.full(days=4)
@pytest.mark.parametrize("generation", ["EAGLE", "EAGLE-3"])
def test_an_eagle_draft_changes_no_token(tmp_path, generation):
    checkpoint = tiny.save_tiny(tmp_path / "target", "llama")
    target = AutoModelForCausalLM.from_pretrained(checkpoint).eval()
    draft, tensors = eagle.first_draft(target.config)
    if generation == "EAGLE-3":
        draft = eagle.draft_config(target.config)
        tensors = eagle.draft_tensors(draft)
    folder = eagle.saved(draft, tensors, tmp_path / "draft")
    options = {"batch_size": 2, "speculation_length": 3, "enable_eagle_speculation": True}
    options |= {"tp_degree": 2, "sequence_parallel_enabled": True}
    config = config_of(checkpoint, **options, is_eagle3=generation == "EAGLE-3")
    config.fused_spec_config = FusedSpecNeuronConfig(None, draft_model_path=str(folder))
    model = NeuronLlamaForCausalLM(checkpoint, config)
    model.compile(tmp_path / "both")
    model = NeuronLlamaForCausalLM(tmp_path / "both")
    model.load(tmp_path / "both")
    ids = prompts(2, 6) % tiny.VOCABULARY
    tokens = HuggingFaceGenerationAdapter(model).generate(
        ids, max_new_tokens=10, do_sample=False, eos_token_id=-1, pad_token_id=0
    )
    for row in range(2):
        assert tokens[row, 6:].tolist() == answer(target, ids[row], 10)
    assert model.compiled.last_speculation.draft == f"{generation} draft"
    model.close()


def test_an_eagle_draft_of_another_generation_is_refused(checkpoint, reference, tmp_path):
    folder = eagle.saved(*eagle.first_draft(reference.config), tmp_path / "draft")
    config = config_of(checkpoint, batch_size=1, enable_eagle_speculation=True, is_eagle3=True)
    config.fused_spec_config = FusedSpecNeuronConfig(None, draft_model_path=str(folder))
    with raises(ConfigError, option="is_eagle3"):
        NeuronLlamaForCausalLM(checkpoint, config).compile(tmp_path)
    config.fused_spec_config.draft_model_path = str(tmp_path / "none")
    with raises(WeightsError, path=str(tmp_path / "none")):
        NeuronLlamaForCausalLM(checkpoint, config).compile(tmp_path)


def test_each_row_has_its_adapter(checkpoint, reference, tmp_path):
    torch.manual_seed(0)
    modules = ["q_proj", "down_proj"]
    wrapped = get_peft_model(copy.deepcopy(reference), LoraConfig(r=2, target_modules=modules, init_lora_weights=False))
    wrapped.save_pretrained(tmp_path / "adapter")
    lora = LoraServingConfig(max_loras=1, max_lora_rank=4, lora_ckpt_paths=[f"one : {tmp_path / 'adapter'}"])
    assert lora.target_modules == sorted(modules)
    config = config_of(checkpoint, lora_config=lora)
    model = NeuronLlamaForCausalLM(checkpoint, config)
    model.compile(tmp_path / "compiled")
    model.load(tmp_path / "compiled")
    ids = prompts(1, 6).expand(2, -1)
    with torch.no_grad():
        expected = torch.stack([wrapped(ids).logits[0, -1], reference(ids).logits[0, -1]])
    actual = model(ids, adapter_ids=["one", "__base__"]).logits[:, -1]
    torch.testing.assert_close(actual, expected, atol=1e-4, rtol=1e-4)
    step = {"position_ids": torch.full((2, 1), 6), "seq_ids": torch.arange(2)}
    with raises(ShapeError, held=["one", "__base__"]):
        model(ids[:, :1], adapter_ids=["__base__", "one"], **step)
    with torch.no_grad():
        longer = torch.cat([ids, ids[:, :1]], 1)
        expected = torch.stack([wrapped(longer).logits[0, -1], reference(longer).logits[0, -1]])
    actual = model(ids[:, :1], adapter_ids=["one", "__base__"], **step).logits[:, -1]
    torch.testing.assert_close(actual, expected, atol=1e-4, rtol=1e-4)
    model.close()


def test_wrong_uses_are_refused(checkpoint, compiled, model, tmp_path):
    with raises(ModelError, model_type="llama"):
        NeuronQwen2ForCausalLM(checkpoint, config_of(checkpoint)).compile(tmp_path)
    with raises(NotExportedError, folder=str(tmp_path)):
        NeuronLlamaForCausalLM(tmp_path)
    with raises(NotExportedError, folder=str(tmp_path)):
        NeuronLlamaForCausalLM(checkpoint, config_of(checkpoint)).load(tmp_path)
    with raises(ConfigError, folder=str(compiled / "compiled")):
        NeuronLlamaForCausalLM(checkpoint, config_of(checkpoint, batch_size=3)).load(compiled)
    other = config_of(checkpoint, on_device_sampling_config=SAMPLING, output_logits=True)
    other.num_hidden_layers = 3
    changed = config_of(checkpoint, on_device_sampling_config=SAMPLING, output_logits=True)
    changed.rms_norm_eps = 0.5
    for wrong in (other, changed):
        with raises(ArtifactError, folder=str(compiled)):
            NeuronLlamaForCausalLM(checkpoint, wrong).load(compiled)
    with raises(ConfigError, model="NeuronLlamaForCausalLM"):
        HuggingFaceGenerationAdapter(NeuronLlamaForCausalLM(compiled))
    model.reset()
    with raises(ShapeError, max_context_length=16):
        model(prompts(2, 17))
    with raises(ShapeError, max_context_length=16):
        HuggingFaceGenerationAdapter(model).generate(prompts(2, 17))
    with raises(ShapeError, num_params=1):
        model(prompts(2, 5), sampling_params=prepare_sampling_params(1))
    with raises(ShapeError, shape=[2, 2]):
        HuggingFaceGenerationAdapter(model).generate(prompts(2, 5), sampling_params=torch.ones(2, 2))
    adapter = HuggingFaceGenerationAdapter(model)
    for wrong in (prepare_sampling_params(1), prepare_sampling_params(3)):
        with raises(ShapeError, num_rows=2, num_params=len(wrong)):
            adapter.generate(prompts(2, 5), sampling_params=wrong)
    with raises(ShapeError, attention_mask=[2, 3]):
        adapter.generate(prompts(2, 5), attention_mask=torch.ones(2, 3))
    with raises(ShapeError, rows=[1]):
        adapter.generate(prompts(2, 5), attention_mask=torch.tensor([[1] * 5, [0] * 5]))
    with raises(ShapeError, shape=[5]):
        adapter.generate(prompts(2, 5)[0])
    with raises(ConfigError, option="temperature"):
        model(prompts(2, 5), sampling_params=prepare_sampling_params(2, temperature=-1.0))
    with raises(ShapeError, slots=[0, 2]):
        model(prompts(2, 5), seq_ids=torch.tensor([0, 2]))
    model(prompts(2, 5))
    with raises(ShapeError, position=7):
        model(prompts(2, 1), position_ids=torch.tensor([[7], [5]]))
    with raises(ShapeError, rows=[True, False]):
        model(prompts(2, 1), position_ids=torch.tensor([[0], [5]]))


def test_long_prompts_are_cut_if_that_is_allowed(model, reference, caplog, monkeypatch):
    monkeypatch.setattr(model.neuron_config, "allow_input_truncation", True)
    ids = prompts(2, 20)
    with caplog.at_level(logging.WARNING):
        tokens = model(ids).tokens
    with torch.no_grad():
        assert torch.equal(tokens, reference(ids[:, :16]).logits[:, -1].argmax(-1))
    assert "Truncating" in caplog.text
