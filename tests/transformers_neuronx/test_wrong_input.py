"""Wrong options, prompts, and files of `transformers_neuronx`: one error each, those of options before a compile."""

import json
import shutil

import pytest
import torch
from transformers import AutoModelForCausalLM

from optimum_neuron.errors import ConfigError, ModelError, ShapeError, WeightsError
from optimum_neuron.transformers_neuronx import (
    ContinuousBatchingConfig,
    GenerationConfig,
    GPT2ForSampling,
    HuggingFaceGenerationModelAdapter,
    KVCacheQuantizationConfig,
    LlamaForSampling,
    NeuronConfig,
    QuantizationConfig,
    SparseAttnConfig,
    save_pretrained_split,
)
from tests import tiny
from tests.raising import raises

OPTIONS = {"batch_size": 2, "n_positions": [48], "context_length_estimate": 16, "tp_degree": 1, "amp": "f32"}


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    return tiny.save_tiny(tmp_path_factory.mktemp("llama"), "llama", num_hidden_layers=1)


@pytest.fixture(scope="module")
def model(checkpoint):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NEURON_CC_FLAGS", "-O1")
        config = NeuronConfig(on_device_generation=GenerationConfig(dynamic=True))
        model = LlamaForSampling.from_pretrained(checkpoint, **OPTIONS, neuron_config=config)
        model.to_neuron()
    yield model
    model.compiled.close()


def generating(**options):
    return {"neuron_config": NeuronConfig(on_device_generation=GenerationConfig(do_sample=True, **options))}


def batching(**options):
    return {"neuron_config": NeuronConfig(continuous_batching=ContinuousBatchingConfig(**options))}


WRONG = {
    "no core": ({"tp_degree": 0}, {"option": "tp_degree"}),
    "3 cores": ({"tp_degree": 3}, {"option": "tp_degree"}),
    "8 cores for 4 heads": ({"tp_degree": 8}, {"option": "tp_degree", "num_heads": 4}),
    "dtype": ({"amp": "f64"}, {"option": "amp"}),
    "dtype as number": ({"amp": 32}, {"option": "amp"}),
    "beyond the model's positions": ({"n_positions": [16, 4096]}, {"option": "n_positions", "limit": 64}),
    "active tokens": ({"init_n_active_tokens": -1}, {"option": "init_n_active_tokens"}),
    "long context": ({"context_length_estimate": 64}, {"option": "context_length_estimate"}),
    "context as text": ({"context_length_estimate": "16"}, {"option": "context_length_estimate"}),
    "no context": ({"context_length_estimate": []}, {"option": "context_length_estimate"}),
    "no positions": ({"n_positions": []}, {"option": "n_positions"}),
    "0 positions": ({"n_positions": 0}, {"option": "n_positions"}),
    "positions as text": ({"n_positions": "48"}, {"option": "n_positions"}),
    "no rows": ({"batch_size": []}, {"option": "batch_size"}),
    "unroll": ({"unroll": 3}, {"option": "unroll"}),
    "a mapping": ({"neuron_config": {"fuse_qkv": True}}, {"option": "neuron_config"}),
    "sparse": ({"neuron_config": NeuronConfig(sparse_attn=SparseAttnConfig())}, {"option": "sparse_attn"}),
    "unknown": ({"batch": 2}, {"options": ["batch"]}),
    "temperature": (generating(temperature=-1.0), {"option": "temperature"}),
    "3 rows of settings": (generating(per_batch_line=True, top_k=[1, 2, 3]), {"num_settings": 3, "num_rows": 2}),
    "4 sequences": (batching(max_num_seqs=4), {"option": "max_num_seqs", "expected": 2}),
}


@pytest.mark.parametrize(("wrong", "error"), WRONG.values(), ids=WRONG)
def test_wrong_options_are_refused_before_a_compile(checkpoint, wrong, error):
    with raises(ConfigError, **error):
        LlamaForSampling.from_pretrained(checkpoint, **{**OPTIONS, **wrong})


def test_wrong_configurations_are_refused():
    for make, option in (
        (lambda: QuantizationConfig(quant_dtype="s4"), "quant_dtype"),
        (lambda: QuantizationConfig(dequant_dtype="f64"), "dequant_dtype"),
        (lambda: KVCacheQuantizationConfig(quant_dtype="s4"), "quant_dtype"),
        (lambda: NeuronConfig(quant="s8"), "quant"),
        (lambda: NeuronConfig(on_device_generation={"top_k": 1}), "on_device_generation"),
        (lambda: GenerationConfig(top_k=0), "top_k"),
        (lambda: GenerationConfig(top_p_min_tokens=-1), "top_p_min_tokens"),
        (lambda: GenerationConfig(max_length="48"), "max_length"),
        (lambda: GenerationConfig(dynamic="yes"), "dynamic"),
        (lambda: ContinuousBatchingConfig(max_num_seqs=0), "max_num_seqs"),
        (lambda: QuantizationConfig(no_quantize_list="lm_head"), "no_quantize_list"),
        (lambda: NeuronConfig(fuse_qkv="no"), "fuse_qkv"),
        (lambda: NeuronConfig(compilation_worker_count=0), "compilation_worker_count"),
        (
            lambda: ContinuousBatchingConfig(max_num_seqs=2, batch_size_for_shared_caches=4),
            "batch_size_for_shared_caches",
        ),
    ):
        with raises(ConfigError, option=option):
            make()
    with raises(ConfigError, options=["quantize"]):
        NeuronConfig(quantize=True)
    with raises(ConfigError, options=["top_p_min_tokens"]):
        GenerationConfig(top_p_min_tokens=[1, 2])


def test_wrong_calls_before_a_compile_are_refused(checkpoint):
    with raises(ModelError, model_type="llama"):
        GPT2ForSampling.from_pretrained(checkpoint)
    model = LlamaForSampling.from_pretrained(checkpoint, **OPTIONS)
    with raises(ConfigError, model="LlamaForSampling"):
        model.sample(torch.ones(2, 9, dtype=torch.long), 20)
    for wrong in (0, [], "4"):
        with raises(ConfigError, option="speculation_length"):
            model.enable_speculative_decoder(wrong)
    for wrong in (0, 49):
        with raises(ConfigError, option="window_context_length"):
            model.enable_window_context_decoder(wrong)
    model.enable_window_context_decoder(8)
    assert model._options["prefill_buckets"] == (8,)


def test_wrong_prompts_are_refused(model, caplog):
    ids, adapter = torch.full((2, 9), 7), HuggingFaceGenerationModelAdapter(model.config, model)
    for wrong in (0, -1, 20.0, 8):
        with raises(ConfigError, option="sequence_length"):
            model.sample(ids, wrong)
    caplog.clear()
    assert torch.equal(model.sample(ids, 60), model.sample(ids, 48))
    assert [(record.levelname, record.args) for record in caplog.records] == [("WARNING", (60, 48))]
    for call in (lambda ids: model.sample(ids, 20), model, adapter.generate):
        with raises(ShapeError, num_rows=3, batch_size=2):
            call(torch.full((3, 9), 7))
    with raises(ShapeError, num_rows=18, batch_size=2):
        adapter.generate(ids, num_beams=9)
    with raises(ShapeError, num_tokens=49):
        model.sample(torch.full((2, 49), 7), 48)
    for starts in ([0, 9], [-1, 0]):
        with raises(ShapeError, shape=[2, 9]):
            model.sample(ids, 20, start_ids=torch.tensor(starts))
    for starts in (torch.tensor([3]), torch.tensor([0.5, 0]), torch.tensor([[0, 1]]), "01"):
        with raises(ShapeError, num_rows=2):
            model.sample(ids, 20, start_ids=starts)
    for wrong in (ids.float(), ids[0], ids.tolist()):
        with pytest.raises(ShapeError):
            model.sample(wrong, 20)
    model.reset()
    with raises(ShapeError, position=5):
        model(ids[:, :1], torch.tensor([5]))
    with raises(ConfigError, option="cache_ids"):
        model(ids, torch.arange(9).expand(2, 9))
    for cache_ids in ([0.5], "a", [-3]):
        with raises(ShapeError, cache_ids=cache_ids):
            model(ids, cache_ids)
    with raises(ShapeError, speculation_length=10, num_tokens=9):
        model.speculative_forward(ids, speculation_length=10)
    model(ids)
    for rows in ([5, 6], [0], [-1, 0]):
        with raises(ShapeError, rows=rows):
            model.reorder_cache(rows)


def test_wrong_filters_are_refused(model):
    ids = torch.full((2, 9), 7)
    wrong = {"temperature": 0.0, "top_p": 1.5, "top_k": 0, "no_repeat_ngram_size": -1}
    for option, value in [*wrong.items(), ("temperature", 1), ("top_p", 1)]:
        with raises(ConfigError, option=option):
            model.sample(ids, 20, **{option: value})
    with raises(ConfigError, option="eos_token_id"):
        model.sample(ids, 20, eos_token_override="end")
    with raises(ConfigError, num_settings=3):
        model.update_generation_config(GenerationConfig(per_batch_line=True, do_sample=True, top_k=[1, 2, 3]))
    assert model.generation_sampling.top_k == 50


def test_damaged_split_checkpoints_are_refused(checkpoint, tmp_path):
    save_pretrained_split(AutoModelForCausalLM.from_pretrained(checkpoint), tmp_path / "whole")
    name = json.loads((tmp_path / "whole/pytorch_model.bin/key_to_filename.json").read_text())["lm_head.weight"]
    for damage in (
        lambda folder: (folder / name).unlink(),
        lambda folder: (folder / name).write_bytes(b"no tensor"),
        lambda folder: torch.save({"code": print}, folder / name),
        lambda folder: torch.save({"weight": 1}, folder / name),
        lambda folder: torch.save(torch.zeros(3, 3), folder / name),
        lambda folder: (folder / "key_to_filename.json").unlink(),
        lambda folder: (folder / "key_to_filename.json").write_text("{}"),
    ):
        shutil.rmtree(tmp_path / "split", ignore_errors=True)
        shutil.copytree(tmp_path / "whole", tmp_path / "split")
        damage(tmp_path / "split/pytorch_model.bin")
        with pytest.raises(WeightsError):
            LlamaForSampling.from_pretrained(tmp_path / "split", **OPTIONS).to_neuron()
