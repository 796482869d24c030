"""Runs by files of NxD Training, against transformers' `Trainer` on the CPU, and what the options are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import transformers

from optimum_neuron import nxd_training
from optimum_neuron.errors import ConfigError
from optimum_neuron.neuronx_distributed import configuration
from optimum_neuron.nxd_training import Given, estimate_options, model_config, read_given
from optimum_neuron.nxd_training.options import training_options
from tests import warm
from tests.nxd_training.runs import NUM_STEPS, SIZES, reference_losses, write_run


@pytest.mark.full(days=4)
def test_losses_are_those_of_transformers(built, tmp_path: Path) -> None:
    result = nxd_training.train(write_run(tmp_path))
    assert [one["loss"] for one in result["losses"]] == pytest.approx(reference_losses(tmp_path), rel=1e-5)
    folder = Path(result["output_dir"])
    assert folder == tmp_path / "runs" / "tiny"
    assert [path.name for path in folder.glob("checkpoint-*")] == [f"checkpoint-{NUM_STEPS}"]  # save_top_k: 1
    trained = transformers.AutoConfig.from_pretrained(folder / f"checkpoint-{NUM_STEPS}")
    assert (trained.num_hidden_layers, trained.hidden_size, trained.max_position_embeddings) == (2, 32, 16)
    assert "compiler_flags" in result["without_effect"]
    assert nxd_training.train(tmp_path / "tiny.yaml")["losses"] == result["losses"]  # resumed at its end


@pytest.mark.full(days=2)
@pytest.mark.parametrize("degree", [1, 2])
def test_losses_of_two_processes(built, tmp_path: Path, degree: int) -> None:
    path = write_run(tmp_path, devices=2, distributed_strategy__tensor_model_parallel_size=degree)
    command = ("-m", "tests.nxd_training.runs", str(path))
    done = warm.run_ranks(*command, num_processes=2, OPTIMUM_NEURON_INSTANCE="inf2.24xlarge")
    assert done.returncode == 0, done
    result = json.loads(path.with_suffix(".json").read_text())
    assert [one["loss"] for one in result["losses"]] == pytest.approx(reference_losses(tmp_path), rel=1e-5)


def test_precisions(tmp_path: Path) -> None:
    names = ("dtype", "bf16", "optimizer_use_master_weights", "stochastic_rounding_enabled")
    for options, expected in (
        ({"type": "fp32"}, ("float32", False, False, False)),
        ({"type": "autocast"}, ("float32", True, False, False)),
        ({"type": "bf16SR"}, ("bfloat16", False, False, True)),
        ({"type": "mixed_precision"}, ("bfloat16", False, True, False)),
        ({"type": "mixed_precisionSR"}, ("bfloat16", False, True, True)),
        ({"type": "manual", "xla_use_bf16": "1", "master_weights": True}, ("bfloat16", False, True, False)),
    ):
        fields = training_options(read_given(write_run(tmp_path, precision=options)), 1)
        assert tuple(fields[name] for name in names) == expected


@pytest.mark.parametrize(
    ("changed", "key"),
    [
        ({"trainer__max_step": 3}, "trainer.max_step"),
        ({"model_source": "megatron"}, "model_source"),
        ({"distributed_strategy__virtual_pipeline_model_parallel_size": 2}, None),
        ({"distributed_strategy__expert_model_parallel_size": 2}, None),
        ({"data__global_batch_size": 7}, "data.global_batch_size"),
        ({"data__train_dir": "absent"}, "data.train_dir"),
        ({"seed": "${trainer.absent}"}, "trainer.absent"),
        ({"seed": "${seed}"}, "seed"),
        ({"model_alignment_strategy__dpo": {"kl_beta": 0.1}}, "dpo"),
        ({"model": {"optim": {"sched": {"max_steps": 9}}}}, "model.optim.sched.max_steps"),
    ],
)
def test_bad_options_end_before_training(tmp_path: Path, changed: dict[str, object], key: str | None) -> None:
    with pytest.raises(ConfigError) as error:
        nxd_training.train(write_run(tmp_path, **changed))
    assert error.value.details["key"] == (key or next(iter(changed)).replace("__", "."))
    assert not (tmp_path / "runs").exists()


def test_processes_are_those_of_the_file(tmp_path: Path) -> None:
    given = read_given(write_run(tmp_path, devices=4, distributed_strategy__tensor_model_parallel_size=2))
    assert training_options(given, 4)["gradient_accumulation_steps"] == 2
    with pytest.raises(ConfigError) as error:
        training_options(given, 2)
    assert error.value.details == {"expected": 4, "num_processes": 2}


def test_estimate_of_file_is_that_of_its_options(cli: Any, tmp_path: Path) -> None:
    path = write_run(tmp_path, trainer__num_nodes=2, model__activations_checkpoint_granularity="full")
    options, unused = estimate_options(read_given(path))
    assert options == {
        "num_instances": 2, "sequence_length": 16, "batch_size": 8, "micro_batch_size": 2, "tensor_parallel_size": 1,
        "pipeline_parallel_size": 1, "zero_1": True, "gradient_checkpointing": True,
        "optimizer_use_master_weights": False,
    }  # fmt: skip
    assert "compiler_flags" in unused and "trainer.num_nodes" not in unused
    assert model_config(read_given(path)).hidden_size == 32
    found = cli("neuron", "estimate-training", "--json", "--config", str(path), "--batch_size", "64").json
    model = transformers.LlamaConfig(**SIZES, hidden_size=32, num_hidden_layers=2)
    model.save_pretrained(tmp_path / "sized")
    flags = ["--num_instances=2", "--sequence_length=16", "--batch_size=64", "--micro_batch_size=2"]
    flags += ["--tensor_parallel_size=1", "--pipeline_parallel_size=1"]
    expected = cli("neuron", "estimate-training", "--json", str(tmp_path / "sized"), *flags).json
    assert found["step_ms"] == expected["step_ms"] and found["layout"] == expected["layout"]
    assert "compiler_flags" in found["notes"][-1]
    assert cli("neuron", "estimate-training").code == 1


def test_command(cli: Any, tmp_path: Path) -> None:
    path = write_run(tmp_path, trainer__max_step=3)
    result = cli("neuron", "train", "--config", str(path))
    assert result.code == 1 and "did you mean 'trainer.max_steps'" in result.stderr
    assert "Traceback" not in result.stderr
    assert cli("neuron", "train").code == 2


def test_estimate_of_nxd_configuration() -> None:
    config = configuration.neuronx_distributed_config(
        tensor_parallel_size=8, optimizer_config={"zero_one_enabled": True}, activation_checkpoint_config="full"
    )
    options, unused = estimate_options(Given(config, "config"))
    assert options == {
        "tensor_parallel_size": 8, "pipeline_parallel_size": 1, "zero_1": True, "gradient_checkpointing": True,
        "optimizer_use_master_weights": True,
    }  # fmt: skip
    assert "optimizer_config.max_grad_norm" in unused
    for wrong, key in (({"tensor_paralel_size": 2}, "tensor_paralel_size"), ({"context_parallel_size": 2}, None)):
        with pytest.raises(ConfigError) as error:
            estimate_options(Given({**config, **wrong}, "config"))
        assert error.value.details["key"] == (key or "context_parallel_size")
