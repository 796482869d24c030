"""The classes of `transformers_neuronx` against transformers: greedy tokens, logits at positions, padding, beams."""

import pytest
import torch
from transformers import AutoModelForCausalLM, TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

from optimum_neuron.errors import ConfigError, NotExportedError, ShapeError, ValidationError, WeightsError
from optimum_neuron.modeling import NeuronModelForCausalLM
from optimum_neuron.transformers_neuronx import (
    ContinuousBatchingConfig,
    GenerationConfig,
    GPT2ForSamplingWithContextBroadcasting,
    HuggingFaceGenerationModelAdapter,
    LlamaForSampling,
    NeuronAutoModelForCausalLM,
    NeuronConfig,
    QuantizationConfig,
    save_pretrained_split,
)
from optimum_neuron.transformers_neuronx.sampling import Sampling
from tests import tiny
from tests.raising import raises

OPTIONS = {"batch_size": 2, "n_positions": [48], "context_length_estimate": 16, "tp_degree": 1, "amp": "f32"}


@pytest.fixture(scope="module", autouse=True)
def quick_compiles():
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NEURON_CC_FLAGS", "-O1")
        yield


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    return tiny.save_tiny(tmp_path_factory.mktemp("llama"), "llama", num_hidden_layers=2)


@pytest.fixture(scope="module")
def reference(checkpoint):
    return AutoModelForCausalLM.from_pretrained(checkpoint).eval()


@pytest.fixture(scope="module")
def model(checkpoint):
    model = LlamaForSampling.from_pretrained(checkpoint, **OPTIONS)
    model.enable_speculative_decoder(3)
    model.to_neuron()
    yield model
    model.compiled.close()


def prompts(num_rows, num_columns, seed=0):
    return torch.randint(3, tiny.VOCABULARY, (num_rows, num_columns), generator=torch.Generator().manual_seed(seed))


def continued(reference, ids, length, **options):
    """Greedy tokens of transformers, padded with the end token as `sample` does."""
    options = {"attention_mask": torch.ones_like(ids), "do_sample": False, "pad_token_id": 2, **options}
    return reference.generate(ids, max_length=length, **options)


def test_the_likeliest_of_one_is_greedy(model, reference):
    ids = prompts(2, 9)
    actual = model.sample(ids, 24, top_k=1)
    assert actual.dtype == torch.int64 and torch.equal(actual, continued(reference, ids, 24))
    assert torch.equal(model.sample(ids, 9), ids), "there is no room for an answer"


def test_padding_on_the_left_is_told_by_start_ids(model, reference):
    ids = prompts(2, 9)
    ids[1, :4] = 0
    alone = continued(reference, ids[1:, 4:], 30)
    assert model.sample(ids, 34, start_ids=torch.tensor([0, 4]), top_k=1)[1, 4 : 4 + alone.shape[1]].tolist() == (
        alone[0].tolist()
    )


def test_logits_at_positions_are_those_of_the_whole_sequence(model, reference):
    ids = prompts(2, 14)
    with torch.no_grad():
        expected = reference(ids).logits
    torch.testing.assert_close(model(ids[:, :8]), expected[:, 7], atol=1e-4, rtol=1e-4)
    for column in (8, 9, 10):
        actual = model(ids[:, column : column + 1], torch.tensor([column]))
        torch.testing.assert_close(actual, expected[:, column], atol=1e-4, rtol=1e-4)
    several = model.speculative_forward(ids[:, 11:], torch.arange(11, 14))  # [tokens, vocabulary, batch]
    torch.testing.assert_close(several.permute(2, 0, 1), expected[:, 11:], atol=1e-4, rtol=1e-4)
    again = model(ids[:, 9:10], torch.tensor([9]))  # takes the newest tokens back
    torch.testing.assert_close(again, expected[:, 9], atol=1e-4, rtol=1e-4)
    model.reorder_cache([1, 1])
    actual = model(ids[[1, 1], 10:11], torch.tensor([10]))
    torch.testing.assert_close(actual, expected[[1, 1], 10], atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("side", ["batching", "right"])
def test_sequences_join_a_batch_and_leave_it(checkpoint, reference, side):
    batching = {"continuous_batching": ContinuousBatchingConfig(max_num_seqs=2)}
    config = NeuronConfig(**batching) if side == "batching" else NeuronConfig(padding_side="right")
    model = LlamaForSampling.from_pretrained(checkpoint, **OPTIONS, neuron_config=config)
    model.to_neuron()
    ids = prompts(2, 12)
    with torch.no_grad():
        expected = reference(ids).logits

    def add(rows, tokens, positions):
        return model(torch.tensor(tokens), torch.tensor(positions), torch.tensor(rows))

    def close(actual, row, column):
        torch.testing.assert_close(actual, expected[row, column], atol=1e-4, rtol=1e-4)

    close(add([1], [[*ids[1, :5], 0, 0]], [[0, 1, 2, 3, 4, 0, 0]])[0], 1, 4)
    close(add([1], [[ids[1, 5]]], [[5]])[0], 1, 5)
    close(add([0], [ids[0, :8].tolist()], [list(range(8))])[0], 0, 7)  # sequence 1 is kept
    both = add([1, 0], [[ids[1, 6]], [ids[0, 8]]], [[6], [8]])
    close(both[0], 1, 6)
    close(both[1], 0, 8)
    with raises(ShapeError, slot=0):
        add([0], [[5]], [[20]])
    assert torch.equal(model.sample(ids, 20, start_ids=torch.arange(2), top_k=1), continued(reference, ids, 20))
    with raises(ShapeError, start_ids=[0, 4]):
        model.sample(ids, 20, start_ids=torch.tensor([0, 4]))
    model.compiled.close()


def test_draws_have_the_probabilities_of_the_filters():
    logits = torch.randn(40, generator=torch.Generator().manual_seed(0)) * 2
    values, tokens = (logits / 2.0).topk(5)
    probabilities = values.softmax(-1)
    num_left = int(((probabilities.cumsum(-1) - probabilities) < 0.7).sum())
    expected = 2000 * probabilities[:num_left] / probabilities[:num_left].sum()
    torch.manual_seed(0)
    drawn = Sampling(top_k=5, top_p=0.7, temperature=2.0).draw(torch.zeros(2000, 0), logits.expand(2000, -1))
    counts = torch.stack([(drawn == token).sum() for token in tokens])
    assert 1 < num_left < 5 and counts.sum() == 2000 and counts[num_left:].sum() == 0
    # Chi-squared with at most 3 degrees of freedom: 17 is at a probability of 0.0007.
    assert float(((counts[:num_left] - expected) ** 2 / expected).sum()) < 17


@pytest.mark.parametrize(("temperature", "top_k", "top_p"), [(1.0, 50, 1.0), (1.3, 50, 0.9), (0.5, 5, 0.6)])
def test_a_seed_fixes_draws_among_the_columns_that_any_row_keeps(temperature, top_k, top_p):
    logits = torch.randn(3, tiny.VOCABULARY, generator=torch.Generator().manual_seed(1))
    warped = logits
    for warper in (TemperatureLogitsWarper(temperature), TopKLogitsWarper(top_k), TopPLogitsWarper(top_p)):
        warped = warper(None, warped)
    width = int(warped.isfinite().sum(-1).max())
    scores, tokens = warped.topk(width)
    sampling = Sampling(temperature=temperature, top_k=top_k, top_p=top_p)
    for seed in range(20):
        torch.manual_seed(seed)
        drawn = torch.multinomial(scores.softmax(-1), num_samples=1, replacement=True)
        torch.manual_seed(seed)
        assert sampling.draw(logits[:, :0].long(), logits).tolist() == tokens.gather(1, drawn)[:, 0].tolist()


def test_rows_have_settings_of_their_own():
    logits = torch.tensor([[0.0, 3.0, 2.9, 2.8]] * 2)
    _, tokens = (sampling := Sampling(top_k=[1, 3], temperature=[1.0, 5.0])).filtered(logits)
    probabilities, _ = sampling.filtered(logits)
    assert (probabilities > 0).sum(-1).tolist() == [1, 3] and tokens[0, 0] == 1
    probabilities, _ = Sampling(top_k=4, top_p=0.01, top_p_min_tokens=[1, 3]).filtered(logits)
    assert (probabilities > 0).sum(-1).tolist() == [1, 3]
    with raises(ConfigError, num_rows=2):
        Sampling(top_k=[1, 2, 3]).filtered(logits)


def test_largest_logits_of_all_rows_and_the_middle_of_probabilities():
    logits = torch.log(torch.tensor([[0.1, 0.45, 0.25, 0.2], [0.2, 0.1, 0.1, 0.6]]))
    probabilities, tokens = Sampling(top_k=[3, 4], global_top_k=2).filtered(logits)
    torch.testing.assert_close(probabilities, torch.tensor([[0.45 / 0.7, 0.25 / 0.7], [0.75, 0.25]]))
    assert tokens.tolist() == [[1, 2], [3, 0]]
    draws = [Sampling(top_k=4, deterministic=True).draw(torch.zeros(2, 0), logits).tolist() for _ in range(5)]
    assert draws == [[2, 3]] * 5  # 0.5 falls behind 0.45, and before 0.6
    with raises(ConfigError, option="global_top_k"):
        Sampling(global_top_k=0)


def test_a_prompt_has_several_answers(tmp_path):
    folder = tiny.save_tiny(tmp_path, "gpt2", n_layer=1)
    options = {**OPTIONS, "n_positions": 24, "batch_size": 4}
    with raises(ConfigError, option="prompt_batch_size", batch_size=4):
        GPT2ForSamplingWithContextBroadcasting.from_pretrained(folder, **options, prompt_batch_size=3)
    model = GPT2ForSamplingWithContextBroadcasting.from_pretrained(folder, **options, prompt_batch_size=2)
    model.to_neuron()
    ids = prompts(2, 9)
    expected = continued(AutoModelForCausalLM.from_pretrained(folder).eval(), ids, 16)
    assert torch.equal(model.sample(ids, 16, top_k=1), expected.repeat_interleave(2, 0))
    reference = AutoModelForCausalLM.from_pretrained(folder)
    ids[1, :3] = 0
    mask = torch.ones_like(ids)
    mask[1, :3] = 0
    options = {"num_beams": 2, "num_return_sequences": 2, "max_length": 16, "do_sample": False}
    beams = reference.generate(ids, attention_mask=mask, **options).reshape(2, 2, -1)
    assert torch.equal(model.beam_search(ids, 2, 16, start_ids=torch.tensor([0, 3])), beams)
    torch.manual_seed(0)
    first, second, *_ = model.sample(ids, 16).tolist()
    assert first[:9] == second[:9] == ids[0].tolist() and first != second
    model.compiled.close()


def test_attention_may_keep_its_weights(tmp_path):
    folder = tiny.save_tiny(tmp_path, "opt", num_hidden_layers=1)
    config = NeuronConfig(quant=QuantizationConfig(quant_dtype="s8", quantize_attn=False))
    model = NeuronAutoModelForCausalLM.from_pretrained(folder, **OPTIONS, neuron_config=config)
    model.to_neuron()
    weights = model.compiled.loaded.program.weights
    for kind, dtype in {".attention.": "float32", ".mlp.": "int8"}.items():
        assert {weights[name].dtype for name in weights if kind in name and name.endswith(".weight")} == {dtype}
    model.compiled.close()


def test_streamer_and_stopping_criteria(model):
    class Streamer:
        def __init__(self):
            self.parts, self.has_ended = [], False

        def put(self, tokens):
            self.parts.append(tokens)

        def end(self):
            self.has_ended = True

    ids, streamer = prompts(2, 5), Streamer()
    seen = []
    result = model.sample(
        ids,
        30,
        top_k=1,
        streamer=streamer,
        stopping_criteria_list=[lambda ids, scores: seen.append(1) or len(seen) == 4],
    )
    assert result.shape == (2, 9) and streamer.has_ended
    assert torch.equal(torch.cat(streamer.parts, 1), result[:, 5:])


def test_adapter_generates_as_transformers(model, reference, checkpoint):
    adapter = HuggingFaceGenerationModelAdapter(reference.config, model)
    ids, mask = prompts(2, 7), torch.ones(2, 7, dtype=torch.long)
    ids[0, :3], mask[0, :3] = 0, 0
    for num_rows, num_beams in ((2, 1), (1, 2)):
        shared = {"attention_mask": mask[:num_rows], "max_length": 13, "pad_token_id": 0, "do_sample": False}
        shared["num_beams"] = num_beams
        assert torch.equal(adapter.generate(ids[:num_rows], **shared), reference.generate(ids[:num_rows], **shared))
    with torch.no_grad():
        expected = reference(ids[1:]).logits[:, -1:]
    (logits,) = adapter(ids[1:], torch.arange(7))  # the arguments of the vendor's
    torch.testing.assert_close(logits, expected, atol=1e-4, rtol=1e-4)
    assert torch.equal(adapter(ids[1:], torch.arange(7), return_dict=True).logits, logits)


def test_a_difference_from_the_reference_model_is_a_warning(checkpoint, reference, caplog, monkeypatch):
    def differ(*_):
        raise ValidationError("1 of 4 results is past its tolerance.", hint="Pass a larger --atol.")

    monkeypatch.setattr("optimum_neuron.exporters.validation.recorded._compare", differ)
    other = LlamaForSampling.from_pretrained(checkpoint, **{**OPTIONS, "batch_size": 1})
    other.to_neuron()
    assert "1 of 4 results" in caplog.text and "--atol" not in caplog.text
    ids = prompts(1, 5)
    assert torch.equal(other.sample(ids, 10, top_k=1), continued(reference, ids, 10))
    other.compiled.close()


def test_artifacts_and_split_checkpoints(checkpoint, reference, model, tmp_path, monkeypatch):
    close = NeuronModelForCausalLM.close
    save_pretrained_split(reference, tmp_path / "split")
    split = LlamaForSampling.from_pretrained(tmp_path / "split", **OPTIONS)
    split.to_neuron()
    ids = prompts(2, 5)
    assert torch.equal(split.sample(ids, 10, top_k=1), model.sample(ids, 10, top_k=1))
    split.save(tmp_path / "compiled", sharded_weights=True)
    split.compiled.close()
    saved = LlamaForSampling.from_pretrained(tmp_path / "compiled", **OPTIONS)
    saved.load(tmp_path / "compiled")
    saved.to_neuron()
    assert torch.equal(saved.sample(ids, 10, top_k=1), model.sample(ids, 10, top_k=1))
    saved.compiled.close()
    loaded = LlamaForSampling.from_pretrained(checkpoint, **OPTIONS)
    loaded.load(tmp_path / "compiled")
    loaded.to_neuron()
    assert torch.equal(loaded.sample(ids, 10, top_k=1), model.sample(ids, 10, top_k=1))
    loaded.compiled.close()
    tuned = AutoModelForCausalLM.from_pretrained(tiny.save_tiny(tmp_path / "1", "llama", seed=1, num_hidden_layers=2))
    save_pretrained_split(tuned, tmp_path / "tuned")
    loaded = LlamaForSampling.from_pretrained(tmp_path / "tuned", **OPTIONS)
    loaded.load(tmp_path / "compiled")
    loaded.to_neuron()
    assert torch.equal(loaded.sample(ids, 10, top_k=1), continued(tuned.eval(), ids, 10))
    loaded.compiled.close()
    rope = {"rope_type": "default", "rope_theta": 500.0}
    turned = tiny.save_tiny(tmp_path / "turned", "llama", num_hidden_layers=2, rope_parameters=rope)
    smaller = tiny.save_tiny(tmp_path / "smaller", "llama", num_hidden_layers=1)
    quantized = {"neuron_config": NeuronConfig(quant=QuantizationConfig())}
    for folder, changed in (
        (checkpoint, {"batch_size": 3}),
        (checkpoint, {"amp": "bf16"}),
        (checkpoint, quantized),
        (turned, {}),
        (smaller, {}),
    ):
        other = LlamaForSampling.from_pretrained(folder, **{**OPTIONS, **changed})
        other.load(tmp_path / "compiled")
        with raises(ConfigError, folder=str(tmp_path / "compiled")):
            other.to_neuron()
    closed = []
    monkeypatch.setattr(NeuronModelForCausalLM, "replace_weights", lambda self, weights: 1 / 0)
    monkeypatch.setattr(NeuronModelForCausalLM, "close", lambda self: closed.append(close(self)))
    damaged = LlamaForSampling.from_pretrained(checkpoint, **OPTIONS)
    damaged.load(tmp_path / "compiled")
    with pytest.raises(ZeroDivisionError):
        damaged.to_neuron()
    assert closed == [None]
    next((tmp_path / "split" / "pytorch_model.bin").glob("p3.*")).unlink()
    with raises(WeightsError, folder=str(tmp_path / "split" / "pytorch_model.bin")):
        LlamaForSampling.from_pretrained(tmp_path / "split", **OPTIONS).to_neuron()
    (tmp_path / "file").touch()
    with pytest.raises(FileExistsError):
        model.save(tmp_path / "file")
    with raises(NotExportedError, folder=str(tmp_path / "nothing")):
        loaded.load(tmp_path / "nothing")


def test_device_picks_tokens(checkpoint, reference):
    config = NeuronConfig(
        on_device_generation=GenerationConfig(do_sample=False, max_length=18), on_device_embedding=True
    )
    model = LlamaForSampling.from_pretrained(checkpoint, **OPTIONS, neuron_config=config)
    model.to_neuron()
    ids = prompts(2, 9)
    with torch.no_grad():
        expected = reference(ids).logits[:, -1].argmax(-1)
    assert model(ids)[:, 0].tolist() == expected.tolist()
    assert torch.equal(model.sample(ids, 24), continued(reference, ids, 18))  # max_length ends it
    with raises(ConfigError, option="dynamic"):
        model.update_generation_config(GenerationConfig(do_sample=True))
    model.compiled.close()
