"""TRL's trainers: losses are those of TRL on the CPU, adapters and checkpoints are plain, mistakes are told."""

from __future__ import annotations

import copy
import subprocess
import sys

import pytest
import torch

from optimum_neuron.errors import ConfigError, ModelError

peft = pytest.importorskip("peft")
trl = pytest.importorskip("trl")

from datasets import Dataset  # noqa: E402  (needs the extra)

from optimum_neuron import NeuronTrainingArguments  # noqa: E402
from optimum_neuron.trainer import post_training  # noqa: E402
from tests.trainer.conftest import SIZES, losses  # noqa: E402

ROWS = [
    {"prompt": prompt, "completion": better, "chosen": better, "rejected": worse}
    for prompt, better, worse in (("a b c", " d e", " x y"), ("1 2 3", " 4 5", " 9 7"), ("m n", " o p", " k"))
] * 6
COLUMNS = {
    "SFT": ["prompt", "completion"],
    "DPO": ["prompt", "chosen", "rejected"],
    "ORPO": ["prompt", "chosen", "rejected"],
    "Reward": ["prompt", "chosen", "rejected"],
    "GRPO": ["prompt"],
}
PADDED = {"pad_to_multiple_of": 8, "max_length": 32}
OPTIONS = {
    "SFT": PADDED,
    "DPO": PADDED,
    "ORPO": {"max_length": 32},
    "Reward": PADDED,
    "GRPO": {"max_completion_length": 6, "num_generations": 2, "temperature": 1e-4},
}


@pytest.fixture(scope="module")
def tokenizer():
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = ["<pad>", "<end>", "<unknown>", *"abcdefghijklmnopqrstuvwxyz0123456789"]
    model = models.WordLevel({word: index for index, word in enumerate(words)}, unk_token="<unknown>")
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<pad>", eos_token="<end>", unk_token="<unknown>"
    )


@pytest.fixture(scope="module")
def models():
    from transformers import LlamaConfig, LlamaForCausalLM, LlamaForSequenceClassification

    torch.manual_seed(0)
    special = dict(pad_token_id=0, eos_token_id=1, bos_token_id=None, num_key_value_heads=2)
    return {
        "causal": LlamaForCausalLM(LlamaConfig(**SIZES, **special)),
        "scores": LlamaForSequenceClassification(LlamaConfig(**SIZES, **special, num_labels=1)),
    }


def brevity(completions, **others):
    """A reward: fewer words are better."""
    return [-float(len(text.split())) for text in completions]


@pytest.fixture
def trainer(tmp_path, tokenizer, models):
    """Return a function that makes a trainer of a method, ours or TRL's."""

    def make(method, *, upstream=False, peft_config=None, columns=None, **options):
        from trl.experimental.orpo import ORPOConfig, ORPOTrainer

        theirs = {"ORPOConfig": ORPOConfig, "ORPOTrainer": ORPOTrainer}
        prefix, place = ("", trl) if upstream else ("Neuron", post_training)
        kind, configuration = (
            theirs[name] if upstream and name in theirs else getattr(place, prefix + name)
            for name in (f"{method}Trainer", f"{method}Config")
        )
        defaults = dict(
            output_dir=str(tmp_path / ("theirs" if upstream else "ours")),
            max_steps=4,
            logging_steps=1,
            learning_rate=1e-2,
            per_device_train_batch_size=4,
            bf16=False,
            disable_tqdm=True,
            report_to=[],
            save_strategy="no",
            use_cpu=upstream,
        )
        keywords = {"args": configuration(**{**defaults, **OPTIONS[method], **options})}
        if method == "DPO" and peft_config is None:
            keywords["ref_model"] = copy.deepcopy(models["causal"])
        if method == "GRPO":
            keywords["reward_funcs"] = brevity
        return kind(
            copy.deepcopy(models["scores" if method == "Reward" else "causal"]),
            train_dataset=Dataset.from_list(ROWS).select_columns(columns or COLUMNS[method]),
            processing_class=tokenizer,
            peft_config=peft_config,
            **keywords,
        )

    return make


@pytest.mark.parametrize("method", ["SFT", "DPO", "ORPO", "Reward", "GRPO"])
def test_losses_are_those_of_trl_on_the_cpu(trainer, method):
    ours = trainer(method)
    ours.train()
    theirs = trainer(method, upstream=True)  # not before: accelerate has one device for the process
    theirs.train()
    assert ours.model.device.type == "neuron" and theirs.model.device.type == "cpu"
    assert losses(ours) == pytest.approx(losses(theirs), abs=1e-4)
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
    assert made.bf16 and made.device.type == "neuron"
    with pytest.raises(ConfigError, match="fp16=True"):
        post_training.NeuronDPOConfig(output_dir="out", fp16=True)


@pytest.mark.parametrize("method", ["SFT", "DPO", "ORPO", "Reward", "GRPO"])
def test_a_configuration_of_another_class(models, method):
    kind = getattr(post_training, f"Neuron{method}Trainer")
    with pytest.raises(ConfigError, match=f"no Neuron{method}Config.*use Neuron{method}Config"):
        kind(models["causal"], args=NeuronTrainingArguments(output_dir="out"))


def test_without_a_configuration_there_is_trls(models):
    made = post_training.upstream.configuration_for("", None, post_training.NeuronDPOConfig, "org/small")
    assert made.output_dir == "small-DPO"


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
    assert "TRL is not installed" in done.stdout and 'pip install "optimum-neuron-sim[training]"' in done.stdout, done


def test_a_version_of_trl_without_the_class():
    with (
        pytest.raises(ConfigError, match=r"NeuronORPOTrainer: TRL \d.*that has NoTrainer in trl"),
        post_training.upstream.requiring_trl("NeuronORPOTrainer", "trl.NoTrainer"),
    ):
        from trl import NoTrainer  # noqa: F401
