"""TRL's trainers: losses match TRL on the CPU, adapters and checkpoints are plain, mistakes are errors."""

from __future__ import annotations

import copy
import importlib.metadata
import inspect
import json
import pickle

import pytest
import torch

from optimum_neuron.errors import ConfigError, ModelError

peft = pytest.importorskip("peft")
trl = pytest.importorskip("trl")

from optimum_neuron import NeuronTrainingArguments  # noqa: E402  (needs the extra)
from optimum_neuron.trainer import NeuronArgumentsMixin, NeuronTrainerMixin, post_training  # noqa: E402
from optimum_neuron.trainer.post_training.methods import configuration_for, make_classes, require_trl  # noqa: E402
from tests.raising import raises  # noqa: E402
from tests.trainer.conftest import losses, spawn  # noqa: E402
from tests.trainer.post_training import BATCH_SIZE, COLUMNS, make_models, make_tokenizer, make_trainer, train  # noqa: E402

METHODS = list(COLUMNS)


@pytest.fixture(scope="module")
def tokenizer():
    return make_tokenizer()


@pytest.fixture(scope="module")
def models():
    return make_models()


@pytest.fixture
def trainer(tmp_path, tokenizer, models):
    """Return a function that makes a trainer of a method, ours or TRL's."""

    def make(method, *, upstream=False, **options):
        folder = str(tmp_path / ("theirs" if upstream else "ours"))
        return make_trainer(method, models, tokenizer, upstream=upstream, output_dir=folder, **options)

    return make


@pytest.mark.full(days=5)
@pytest.mark.parametrize("method", METHODS)
def test_steps_match_trl_on_cpu(trainer, method):
    actual = trainer(method)
    log_history = train(actual)
    expected = trainer(method, upstream=True)  # not before: accelerate has one device for the process
    assert log_history == pytest.approx(train(expected), abs=1e-4)
    assert actual.model.device.type == "neuron" and expected.model.device.type == "cpu"
    for first, weight in zip(actual.model.parameters(), expected.model.parameters(), strict=True):
        assert torch.allclose(first.cpu(), weight, atol=1e-4)
    if method != "GRPO":  # its loss is the advantage, which has no direction
        assert losses(actual)[-1] < losses(actual)[0]


@pytest.mark.full(days=7)
@pytest.mark.parametrize(
    "adapter",
    [
        peft.LoraConfig(r=4, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM"),
        peft.LoraConfig(r=4, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM", use_dora=True),
        peft.LoraConfig(r=4, target_modules="all-linear", task_type="CAUSAL_LM", use_rslora=True),
        peft.IA3Config(
            target_modules=["k_proj", "down_proj"], feedforward_modules=["down_proj"], task_type="CAUSAL_LM"
        ),
        peft.VeraConfig(r=8, target_modules=["q_proj"], task_type="CAUSAL_LM"),
        peft.LoHaConfig(r=4, target_modules=["q_proj"], task_type="CAUSAL_LM"),
        peft.PromptTuningConfig(num_virtual_tokens=4, task_type="CAUSAL_LM"),
    ],
    ids=["LoRA", "DoRA", "rank-stabilized", "IA3", "VeRA", "LoHa", "prompts"],
)
def test_adapters_are_trained_and_loaded_by_plain_peft(trainer, models, tmp_path, adapter):
    adapter_model = trainer("SFT", peft_config=adapter, learning_rate=5e-2, save_strategy="steps", save_steps=4)
    adapter_model.train()
    assert losses(adapter_model)[-1] < losses(adapter_model)[0]
    folder = tmp_path / "ours" / "checkpoint-4"
    plain = peft.PeftModel.from_pretrained(copy.deepcopy(models["causal"]), folder).eval()
    ids = torch.arange(8)[None] + 3
    adapter_model.model.eval().cpu()
    with torch.no_grad():
        assert torch.allclose(adapter_model.model(ids).logits, plain(ids).logits, atol=1e-5)


def drop_tokens(entries):
    return {name: value for name, value in entries.items() if not name.startswith("num_tokens")}


@pytest.mark.full(days=3)
def test_two_processes_match_one(trainer, tmp_path):
    same_batch = {"per_device_train_batch_size": BATCH_SIZE}
    shared = [{**same_batch, "tensor_parallel_size": 2}, {**same_batch, "context_parallel_size": 2}]
    # fsdp last: accelerate keeps it in the environment.
    layouts = [{}, {"zero_1": True}, *shared, {"fsdp": True}]
    layouts = [{**layout, "max_steps": 2} for layout in layouts]
    words = map(json.dumps, (METHODS, layouts))
    result = spawn("-m", "tests.trainer.post_training", str(tmp_path), *words, num_processes=2)
    assert result.returncode == 0, result.stderr
    (line,) = [line for line in result.stdout.splitlines() if line.startswith("LOGGED")]
    log_history = json.loads(line.removeprefix("LOGGED"))
    halves = {"per_device_train_batch_size": BATCH_SIZE // 2, "gradient_accumulation_steps": 2}
    for method in METHODS:
        full_run = train(trainer(method, upstream=True, max_steps=2))
        # ORPO averages over the tokens of a process: two with separate rows are two parts of a batch.
        parts = train(trainer(method, upstream=True, max_steps=2, **halves)) if method == "ORPO" else full_run
        for layout in layouts:
            if "context_parallel_size" in layout and method != "SFT":
                continue
            shares_layers = "tensor_parallel_size" in layout
            one, two = full_run if shares_layers else parts, log_history[json.dumps(layout)][method]
            if method == "GRPO" and shares_layers:
                # TRL counts its tokens on each core.
                one, two = (drop_tokens(log_history) for log_history in (one, two))
            assert two == pytest.approx(one, abs=1e-4), (method, layout)


def test_dpo_with_adapter_needs_no_reference(trainer):
    adapter_model = trainer("DPO", peft_config=peft.LoraConfig(r=4, target_modules=["q_proj"], task_type="CAUSAL_LM"))
    adapter_model.train()
    margins = [entry["rewards/margins"] for entry in adapter_model.state.log_history if "rewards/margins" in entry]
    assert adapter_model.ref_model is None and margins[-1] > margins[0]


def test_run_resumes_at_its_step(trainer, tmp_path):
    full_run = trainer("SFT", save_strategy="steps", save_steps=2)
    full_run.train()
    resumed_run = trainer("SFT")
    resumed_run.train(resume_from_checkpoint=str(tmp_path / "ours" / "checkpoint-2"))
    assert losses(resumed_run) == losses(full_run)


def test_configuration_has_both_sets_of_fields():
    config = post_training.NeuronSFTConfig(output_dir="out", packing=True, neuron_target="inf2", max_length=64)
    assert isinstance(config, trl.SFTConfig) and config.max_length == 64 and config.trn_config.tensor_parallel_size == 1
    assert post_training.NeuronSFTConfig(output_dir="out", max_seq_length=32).max_length == 32
    assert config.bf16 and config.device.type == "neuron"
    with raises(ConfigError, option="fp16"):
        post_training.NeuronDPOConfig(output_dir="out", fp16=True)


@pytest.mark.parametrize("method", METHODS)
def test_classes_have_trl_names_with_neuron_prefix(method):
    config, trainer = make_classes(method)
    expected = [
        kind for kind in (*config.__mro__, *trainer.__mro__) if kind.__name__ in (f"{method}Config", f"{method}Trainer")
    ]
    assert len(expected) == 2 and issubclass(trainer, NeuronTrainerMixin) and issubclass(config, NeuronArgumentsMixin)
    assert list(inspect.signature(trainer).parameters)[: len(trainer.leading)] == list(trainer.leading)
    assert method in trainer.__doc__ and "Example" in trainer.__doc__


def test_configuration_is_pickled():
    config = post_training.NeuronSFTConfig(output_dir="out", max_length=8)
    data = pickle.dumps(config, protocol=0)
    # Checkpoints of earlier versions name a module for each method.
    for pickled in (data, data.replace(b"trainer.post_training", b"trainer.post_training.sft")):
        loaded = pickle.loads(pickled)
        assert type(loaded) is type(config) and loaded.max_length == 8


@pytest.mark.parametrize("method", METHODS)
def test_configuration_of_another_class(models, method):
    kind = getattr(post_training, f"Neuron{method}Trainer")
    with raises(ConfigError, option="args", type="NeuronTrainingArguments", expected=f"Neuron{method}Config"):
        kind(models["causal"], args=NeuronTrainingArguments(output_dir="out"))


def test_default_configuration_is_from_trl(models):
    config = configuration_for(post_training.NeuronDPOTrainer, None, "org/small")
    assert config.output_dir == "small-DPO"


def test_tensor_parallel_cores_generate_same_completions(monkeypatch):
    kind = post_training.NeuronGRPOConfig
    monkeypatch.setattr(kind, "world_size", 2)
    sizes = {"output_dir": "out", "tensor_parallel_size": 2, "num_generations": 4}
    config = kind(**sizes, per_device_train_batch_size=4, generation_batch_size=8)
    assert config.generation_batch_size == 8 and config.steps_per_generation == 2
    assert kind(**sizes, per_device_train_batch_size=4).generation_batch_size == 4
    with raises(ConfigError, option="num_generations", value=4, batch_size=2):
        kind(**sizes, per_device_train_batch_size=2)


def test_long_prompts_are_read_from_their_end(trainer, monkeypatch):
    whole = trainer("GRPO")._tokenize_prompts(["a tall plant"])[0][0]
    actual = trainer("GRPO", max_prompt_length=2, max_steps=1)
    assert len(whole) == 3 and actual._tokenize_prompts(["a tall plant"])[0] == [whole[-2:]]
    lengths, generate = [], type(actual)._generate_single_turn

    def noted(self, prompt_ids, *positional, **named):
        lengths.extend(map(len, prompt_ids))
        return generate(self, prompt_ids, *positional, **named)

    monkeypatch.setattr(type(actual), "_generate_single_turn", noted)
    actual.train()
    assert set(lengths) == {2}
    with raises(ConfigError, option="max_prompt_length"):
        trainer("GRPO", max_prompt_length=0)


def test_padding_beyond_positions(trainer):
    with raises(ModelError, num_tokens=128, num_positions=64):
        trainer("SFT", pad_to_multiple_of=128).train()


def test_without_trl_extra_is_named(monkeypatch):
    def version(name):
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", version)
    with raises(ConfigError, module="trl"):
        require_trl("trl", "SFTConfig", "SFTTrainer")


def test_version_of_trl_without_class():
    with raises(ConfigError, module="trl", name="NoTrainer", version=importlib.metadata.version("trl")):
        require_trl("trl", "SFTConfig", "NoTrainer")
