"""TRL's trainers: losses are those of TRL on the CPU, adapters and checkpoints are plain, mistakes are told."""

from __future__ import annotations

import copy
import json
import os
import subprocess
import sys

import pytest
import torch

from optimum_neuron.errors import ConfigError, ModelError

peft = pytest.importorskip("peft")
trl = pytest.importorskip("trl")

from optimum_neuron import NeuronTrainingArguments  # noqa: E402  (needs the extra)
from optimum_neuron.trainer import post_training  # noqa: E402
from tests.trainer.conftest import losses  # noqa: E402
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


@pytest.mark.parametrize("method", METHODS)
def test_steps_are_those_of_trl_on_the_cpu(trainer, method):
    ours = trainer(method)
    found = train(ours)
    theirs = trainer(method, upstream=True)  # not before: accelerate has one device for the process
    assert found == pytest.approx(train(theirs), abs=1e-4)
    assert ours.model.device.type == "neuron" and theirs.model.device.type == "cpu"
    for mine, weight in zip(ours.model.parameters(), theirs.model.parameters(), strict=True):
        assert torch.allclose(mine.cpu(), weight, atol=1e-4)
    if method != "GRPO":  # its loss is the advantage, which has no direction
        assert losses(ours)[-1] < losses(ours)[0]


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
    tuned = trainer("SFT", peft_config=adapter, learning_rate=5e-2, save_strategy="steps", save_steps=4)
    tuned.train()
    assert losses(tuned)[-1] < losses(tuned)[0]
    folder = tmp_path / "ours" / "checkpoint-4"
    plain = peft.PeftModel.from_pretrained(copy.deepcopy(models["causal"]), folder).eval()
    ids = torch.arange(8)[None] + 3
    tuned.model.eval().cpu()
    with torch.no_grad():
        assert torch.allclose(tuned.model(ids).logits, plain(ids).logits, atol=1e-5)


def drop_tokens(logged):
    return {name: value for name, value in logged.items() if not name.startswith("num_tokens")}


def test_two_processes_train_as_one(trainer, tmp_path):
    shared = {"tensor_parallel_size": 2, "per_device_train_batch_size": BATCH_SIZE}
    parts_of_rows = {"context_parallel_size": 2, "per_device_train_batch_size": BATCH_SIZE}
    # fsdp last: accelerate keeps it in the environment.
    layouts = [{}, {"zero_1": True}, shared, parts_of_rows, {"fsdp": True}]
    command = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2", "-m"]
    done = subprocess.run(
        [sys.executable, *command, "tests.trainer.post_training", str(tmp_path), *map(json.dumps, (METHODS, layouts))],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1", "OPTIMUM_NEURON_INSTANCE": "inf2.24xlarge"},
    )
    assert done.returncode == 0, done.stderr
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("LOGGED")]
    found = json.loads(line.removeprefix("LOGGED"))
    halves = {"per_device_train_batch_size": BATCH_SIZE // 2, "gradient_accumulation_steps": 2}
    for method in METHODS:
        whole = train(trainer(method, upstream=True))
        # ORPO averages over the tokens of a process: two with rows of their own are two parts of a batch.
        parts = train(trainer(method, upstream=True, **halves)) if method == "ORPO" else whole
        for layout in layouts if method == "SFT" else [layout for layout in layouts if layout is not parts_of_rows]:
            one, two = whole if layout is shared else parts, found[json.dumps(layout)][method]
            if method == "GRPO" and layout is shared:
                # TRL counts its tokens on each core.
                one, two = (drop_tokens(logged) for logged in (one, two))
            assert two == pytest.approx(one, abs=1e-4), (method, layout)


def test_dpo_with_an_adapter_needs_no_reference(trainer):
    tuned = trainer("DPO", peft_config=peft.LoraConfig(r=4, target_modules=["q_proj"], task_type="CAUSAL_LM"))
    tuned.train()
    margins = [entry["rewards/margins"] for entry in tuned.state.log_history if "rewards/margins" in entry]
    assert tuned.ref_model is None and margins[-1] > margins[0]


def test_a_run_resumes_where_it_was(trainer, tmp_path):
    whole = trainer("SFT", save_strategy="steps", save_steps=2)
    whole.train()
    resumed = trainer("SFT")
    resumed.train(resume_from_checkpoint=str(tmp_path / "ours" / "checkpoint-2"))
    assert losses(resumed) == losses(whole)


def test_a_configuration_has_both_sets_of_fields():
    made = post_training.NeuronSFTConfig(output_dir="out", packing=True, neuron_target="inf2", max_length=64)
    assert isinstance(made, trl.SFTConfig) and made.max_length == 64 and made.trn_config.tensor_parallel_size == 1
    assert post_training.NeuronSFTConfig(output_dir="out", max_seq_length=32).max_length == 32
    assert made.bf16 and made.device.type == "neuron"
    with pytest.raises(ConfigError, match="fp16=True"):
        post_training.NeuronDPOConfig(output_dir="out", fp16=True)


@pytest.mark.parametrize("method", METHODS)
def test_a_configuration_of_another_class(models, method):
    kind = getattr(post_training, f"Neuron{method}Trainer")
    with pytest.raises(ConfigError, match=f"no Neuron{method}Config.*use Neuron{method}Config"):
        kind(models["causal"], args=NeuronTrainingArguments(output_dir="out"))


def test_without_a_configuration_there_is_trls(models):
    made = post_training.upstream.configuration_for("", None, post_training.NeuronDPOConfig, "org/small")
    assert made.output_dir == "small-DPO"


def test_cores_that_share_layers_have_the_same_answers(monkeypatch):
    kind = post_training.NeuronGRPOConfig
    monkeypatch.setattr(kind, "world_size", 2)
    sizes = {"output_dir": "out", "tensor_parallel_size": 2, "num_generations": 4}
    made = kind(**sizes, per_device_train_batch_size=4, generation_batch_size=8)
    assert made.generation_batch_size == 8 and made.steps_per_generation == 2
    assert kind(**sizes, per_device_train_batch_size=4).generation_batch_size == 4
    with pytest.raises(ConfigError, match="num_generations=4: batches of 2 answers"):
        kind(**sizes, per_device_train_batch_size=2)


def test_padding_beyond_the_positions_is_told(trainer):
    with pytest.raises(ModelError, match="rows of 128 tokens in training step 1: a model with 64 positions"):
        trainer("SFT", pad_to_multiple_of=128).train()


def test_without_trl_the_extra_is_named():
    program = """
import sys
sys.modules["trl"] = None
import importlib.metadata as metadata
real = metadata.version
def version(name):
    if name == "trl":
        raise metadata.PackageNotFoundError(name)
    return real(name)
metadata.version = version
from optimum_neuron.errors import ConfigError
from optimum_neuron import *
try:
    from optimum_neuron import NeuronSFTTrainer
except ConfigError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert "TRL is not installed" in done.stdout and "pip install trl" in done.stdout, done


def test_a_version_of_trl_without_the_class():
    with (
        pytest.raises(ConfigError, match=r"NeuronORPOTrainer: TRL \d.*that has NoTrainer in trl"),
        post_training.upstream.requiring_trl("NeuronORPOTrainer", "trl.NoTrainer"),
    ):
        from trl import NoTrainer  # noqa: F401
