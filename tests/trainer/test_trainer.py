"""`NeuronTrainer` against transformers' `Trainer` on the CPU, and everything that a script may ask of it."""

from __future__ import annotations

import copy
import json
import os
from concurrent.futures import Future
from pathlib import Path

import huggingface_hub
import numpy
import pytest
import torch
import transformers

from optimum_neuron import NeuronTrainer, NeuronTrainingArguments
from optimum_neuron.errors import ConfigError
from tests.device.conftest import OPTLEVELS
from tests.raising import raises
from tests.tiny import save_tokenizer
from tests.trainer.conftest import SIZES, losses

SAME = [
    {},
    {"gradient_accumulation_steps": 2},
    {"activation_checkpointing": True},
    {"label_smoothing_factor": 0.1},
    {"bf16": True},
    {"optim": "adafactor"},
    {"max_grad_norm": 0.1, "weight_decay": 0.1, "lr_scheduler_type": "cosine", "warmup_steps": 2},
    {"neftune_noise_alpha": 0.0},
]


@pytest.mark.full(days=10)
@pytest.mark.parametrize("options", SAME, ids=str)
def test_losses_match_cpu(train, llama, sentences, options):
    actual, expected = train(llama, sentences, **options), train(llama, sentences, upstream=True, **options)
    assert actual.model.device == torch.device("neuron:0")
    assert losses(actual) == pytest.approx(losses(expected), abs=1e-4) and len(losses(actual)) == 4
    assert losses(actual)[-1] < losses(actual)[0]


def test_tokenizer_is_processing_class(llama, sentences, tmp_path):
    tokenizer = transformers.PreTrainedTokenizerFast.from_pretrained(save_tokenizer(tmp_path))
    arguments = NeuronTrainingArguments(output_dir=str(tmp_path / "out"), report_to=[])
    trainer = NeuronTrainer(copy.deepcopy(llama), arguments, train_dataset=sentences, tokenizer=tokenizer)
    assert trainer.processing_class is tokenizer
    with raises(ConfigError, arguments=["tokenizer", "processing_class"]):
        NeuronTrainer(llama, arguments, train_dataset=sentences, tokenizer=tokenizer, processing_class=tokenizer)


@pytest.mark.parametrize("kind", ["classifier", "mixture of experts"])
def test_losses_of_other_models_match_cpu(train, bert, classes, sentences, kind):
    torch.manual_seed(0)
    if kind == "classifier":
        model, rows = copy.deepcopy(bert), classes
        for module in model.modules():
            # Dropout draws other numbers on the device after the first draw, so it is off.
            if isinstance(module, torch.nn.Dropout):
                module.p = 0.0
    else:
        experts = dict(num_key_value_heads=2, num_local_experts=4, output_router_logits=True)
        model, rows = transformers.MixtralForCausalLM(transformers.MixtralConfig(**SIZES, **experts)), sentences
    actual, expected = (train(model, rows, upstream=upstream) for upstream in (False, True))
    assert losses(actual) == pytest.approx(losses(expected), abs=1e-4) and len(losses(actual)) == 4


@pytest.mark.full(days=4)
@pytest.mark.parametrize("optlevel", OPTLEVELS)
def test_compiled_losses_match_cpu(train, one_layer, sentences, monkeypatch, optlevel):
    monkeypatch.setenv("NEURON_CC_FLAGS", f"-O{optlevel}")
    torch._dynamo.reset()
    actual = train(one_layer, sentences, torch_compile=True)
    expected = train(one_layer, sentences, upstream=True)
    assert losses(actual) == pytest.approx(losses(expected), abs=1e-4)
    assert actual.args.torch_compile_backend == "neuron"
    assert {"forward", "backward"} <= {graph.kind for graph in torch.neuron.compile_report().graphs}
    assert actual.state.log_history[-2]["neuron/recompiles"] == 0


def test_evaluate_and_predict(make, bert, classes):
    def accuracy(prediction):
        return {"accuracy": float(numpy.mean(prediction.predictions.argmax(-1) == prediction.label_ids))}

    results = []
    for upstream in (False, True):
        trainer = make(bert, classes, upstream=upstream, eval_dataset=classes[:6], compute_metrics=accuracy)
        results.append((trainer.evaluate(), trainer.predict(classes[:6]).predictions))
    (actual, our_predictions), (expected, their_predictions) = results
    assert actual["eval_loss"] == pytest.approx(expected["eval_loss"], abs=1e-5)
    assert actual["eval_accuracy"] == expected["eval_accuracy"]
    numpy.testing.assert_allclose(our_predictions, their_predictions, atol=1e-5)


@pytest.mark.full(days=4)
@pytest.mark.parametrize("case", ["float32", "dropout", "16 bits", "stochastic rounding"])
def test_resumed_run_matches_uninterrupted_run(train, tmp_path, llama, bert, sentences, classes, case):
    # With dropout, the states of the device's random numbers have to come back too.
    model, rows = (bert, classes) if case == "dropout" else (llama, sentences)
    model = copy.deepcopy(model).bfloat16() if case in ("16 bits", "stochastic rounding") else model
    options = {"max_steps": 6, "stochastic_rounding_enabled": case == "stochastic rounding"}
    full_run = train(model, rows, save_strategy="steps", save_steps=3, **options)
    resumed_run = train(model, rows, resume=str(tmp_path / "out" / "checkpoint-3"), **options)
    assert losses(full_run) == losses(resumed_run) and len(losses(full_run)) == 6
    for actual, expected in zip(full_run.model.parameters(), resumed_run.model.parameters(), strict=True):
        assert torch.equal(actual, expected)


def test_saved_model_is_plain_folder(train, tmp_path, llama, sentences):
    trainer = train(llama, sentences, save_strategy="steps", save_steps=2)
    folder = tmp_path / "out" / "checkpoint-4"
    assert {"model.safetensors", "config.json", "optimizer.pt", "trainer_state.json"} <= set(os.listdir(folder))
    plain = transformers.AutoModelForCausalLM.from_pretrained(folder)
    for name, parameter in trainer.model.cpu().named_parameters():
        assert torch.equal(parameter, plain.get_parameter(name)), name


HARMFUL = dict(learning_rate=0.5, eval_strategy="steps", eval_steps=1, save_strategy="steps", save_steps=1)
"""A learning rate that soon does harm: the best step is not the last."""


def test_best_model_is_loaded_at_end(train, tmp_path, llama, sentences):
    options = dict(eval_dataset=sentences[:8], save_total_limit=1, load_best_model_at_end=True)
    trainer = train(llama, sentences, **HARMFUL, **options, metric_for_best_model="loss")
    history = {entry["step"]: entry["eval_loss"] for entry in trainer.state.log_history if "eval_loss" in entry}
    best = min(history, key=history.get)
    assert trainer.state.best_model_checkpoint == str(tmp_path / "out" / f"checkpoint-{best}")
    assert trainer.evaluate()["eval_loss"] == pytest.approx(history[best], abs=1e-6)
    assert {path.name for path in (tmp_path / "out").iterdir()} == {f"checkpoint-{best}"}
    saved = json.loads((tmp_path / "out" / f"checkpoint-{best}" / "trainer_state.json").read_text())
    assert saved["best_model_checkpoint"] == trainer.state.best_model_checkpoint


def test_early_stopping(train, llama, sentences):
    options = dict(eval_dataset=sentences[:8], load_best_model_at_end=True)
    options["callbacks"] = [transformers.EarlyStoppingCallback(2)]
    trainer = train(llama, sentences, max_steps=20, **HARMFUL, **options)
    assert trainer.state.global_step < 20


@pytest.mark.parametrize("enabled", [True, False])
def test_metrics_go_through_log_or_can_be_left_out(train, llama, sentences, enabled):
    calls = []

    class Listener(transformers.TrainerCallback):
        def on_log(self, args, state, control, logs=None, **keywords):
            calls.append(logs)

    train(llama, sentences, callbacks=[Listener()], enable_throughput_metrics=enabled)
    assert all((logs.get("neuron/host_tokens_per_s", 0) > 0) is enabled for logs in calls if "loss" in logs)
    assert not any("est_" in name for logs in calls for name in logs)


def test_estimates_come_from_simulator_and_are_labelled(train, llama, sentences, caplog):
    from optimum_neuron.simulator import estimate_training

    trainer = train(llama, sentences, enable_mfu_metrics=True, gradient_accumulation_steps=2)
    sizes = dict(sequence_length=16, batch_size=8, micro_batch_size=4, tensor_parallel_size=1, pipeline_parallel_size=1)
    options = dict(instance="inf2.xlarge", zero_1=False, gradient_checkpointing=False)
    estimate = estimate_training(llama.config, **sizes, **options)
    for entry in (entry for entry in trainer.state.log_history if "loss" in entry):
        estimates = {name: value for name, value in entry.items() if name.startswith("neuron/est_")}
        assert estimates == {
            f"neuron/est_{name}": estimate.quantities[name].value
            for name in ("step_ms", "mfu", "tokens_per_s", "usd_per_1m_tokens")
        }
    assert "neuron/est_* are simulated, for all of inf2.xlarge" in caplog.text


def test_tokens_are_counted_without_padding(train, llama):
    from optimum_neuron.trainer.metrics import Throughput

    throughput = Throughput()
    ids = torch.ones(2, 4, dtype=torch.long)
    throughput.count({"input_ids": ids, "attention_mask": torch.tensor([[1, 1, 0, 0], [1, 1, 1, 1]])}, "input_ids")
    throughput.count({"input_ids": ids}, "input_ids")
    throughput.count({"pixel_values": torch.zeros(2, 3)}, "pixel_values")
    assert throughput.take()[0] == 6 + 8 and throughput.take()[0] == 0


@pytest.mark.full(days=2)
def test_hyperparameter_search(make, tmp_path, llama, sentences):
    pytest.importorskip("optuna")
    objects = []

    def model_init(trial):
        objects.append(trial)
        return copy.deepcopy(llama)

    trainer = make(None, sentences, model_init=model_init, eval_dataset=sentences[:8], max_steps=2)
    best = trainer.hyperparameter_search(
        hp_space=lambda trial: {"learning_rate": trial.suggest_categorical("learning_rate", [1e-8, 1e-2])},
        backend="optuna",
        n_trials=2,
        sampler=__import__("optuna").samplers.GridSampler({"learning_rate": [1e-8, 1e-2]}),
    )
    assert best.hyperparameters == {"learning_rate": 1e-2} and len(objects) >= 2


@pytest.fixture
def uploads(monkeypatch):
    """Files sent to the Hub: names by the message of the commit."""
    sent, result = [], Future()
    result.set_result(None)

    def upload_folder(self, *, folder_path, ignore_patterns=None, run_as_future=False, **options):
        files = [str(path.relative_to(folder_path)) for path in sorted(Path(folder_path).rglob("*")) if path.is_file()]
        kept = list(huggingface_hub.utils.filter_repo_objects(files, ignore_patterns=ignore_patterns))
        sent.append((options.get("path_in_repo"), kept))
        return result if run_as_future else "https://huggingface.co/acme/pushed/commit/1"

    def create_repo(self, repo_id, **options):
        return huggingface_hub.RepoUrl(f"https://huggingface.co/acme/{repo_id.split('/')[-1]}")

    monkeypatch.setattr(huggingface_hub.HfApi, "create_repo", create_repo)
    monkeypatch.setattr(huggingface_hub.HfApi, "upload_folder", upload_folder)
    return sent


@pytest.mark.filterwarnings("ignore:Cannot enable progress bars")  # upstream enables options that tests disable
def test_push_to_hub(train, llama, sentences, uploads):
    hub = dict(push_to_hub=True, hub_model_id="acme/pushed", hub_strategy="all_checkpoints", hub_always_push=True)
    trainer = train(llama, sentences, save_strategy="steps", save_steps=2, **hub)
    assert [place for place, _ in uploads] == [None, "checkpoint-2", None, "checkpoint-4"]
    assert all({"model.safetensors", "config.json"} <= set(files) for _, files in uploads)
    trainer.push_to_hub()
    names = {name for _, files in uploads for name in files}
    assert "README.md" in names and not any(name.startswith("_unfinished") for name in names)


def test_arguments_of_another_class(llama, tmp_path):
    with raises(ConfigError, option="args", type="TrainingArguments"):
        NeuronTrainer(copy.deepcopy(llama), transformers.TrainingArguments(output_dir=str(tmp_path)))
    with raises(ConfigError, option="model", value="smollm2"):
        NeuronTrainer("smollm2", NeuronTrainingArguments(output_dir=str(tmp_path)))


def test_custom_loss_function(train, llama, sentences):
    def loss(outputs, labels, num_items_in_batch=None):
        return outputs.logits.float().pow(2).mean()

    trainer = train(llama, sentences, compute_loss_func=loss)
    assert losses(trainer)[-1] < losses(trainer)[0]


def test_model_outside_transformers(train, tmp_path):
    class Line(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = torch.nn.Linear(2, 1)

        def forward(self, x, labels=None):
            return {"loss": (self.linear(x).squeeze(-1) - labels).pow(2).mean()}

    rows = [{"x": torch.tensor([i, 1.0]), "labels": torch.tensor(2.0 * i)} for i in range(16)]
    trainer = train(Line(), rows, save_strategy="steps", save_steps=2)
    resumed_run = train(Line(), rows, resume=str(tmp_path / "out" / "checkpoint-2"))
    assert losses(trainer) == losses(resumed_run)
