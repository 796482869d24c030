"""The processes of a distributed test: `torchrun -m tests.distributed.layouts FOLDER STEPS CASE ...`.

A case is a layout. Rank 0 writes its losses to FOLDER/losses-<processes>.json; with WORLD_SIZE unset, transformers'
Trainer runs on the CPU, or NeuronTrainer on one core if weights have 16 bits.
"""

from __future__ import annotations

import gc
import json
import math
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import torch
import transformers

from optimum_neuron.errors import ConfigError, NumericsError
from tests.trainer.conftest import SIZES, losses, make_trainer

BATCH = 8
CASES: dict[str, dict[str, Any]] = {
    "dp": {},
    "zero_1": {"zero_1": True},
    "fsdp": {"fsdp": True},
    "tp": {"tensor_parallel_size": 2},
    "sp": {"tensor_parallel_size": 2, "sequence_parallel": True},
    "tp_pp": {"tensor_parallel_size": 2, "pipeline_parallel_size": 2, "pipeline_parallel_num_microbatches": 2},
    "sp_zero_1": {"tensor_parallel_size": 2, "sequence_parallel": True, "zero_1": True},
    "sp_fsdp": {"tensor_parallel_size": 2, "sequence_parallel": True, "fsdp": True},
    "sp_pp": {"tensor_parallel_size": 2, "sequence_parallel": True, "pipeline_parallel_size": 2},
    "tp_fsdp": {"tensor_parallel_size": 2, "fsdp": True},
    "pp_fsdp": {"pipeline_parallel_size": 2, "fsdp": True},
    "pp_zero_1": {"pipeline_parallel_size": 2, "zero_1": True},
    "tp_zero_1": {"tensor_parallel_size": 2, "zero_1": True},
    "cp": {"context_parallel_size": 2},
    "cp_zero_1": {"context_parallel_size": 2, "zero_1": True},
    "cp_fsdp": {"context_parallel_size": 2, "fsdp": True},
    "cp_tp": {"context_parallel_size": 2, "tensor_parallel_size": 2},
    "cp_sp": {"context_parallel_size": 2, "tensor_parallel_size": 2, "sequence_parallel": True},
    "cp_pp": {"context_parallel_size": 2, "pipeline_parallel_size": 2},
    "pp": {"pipeline_parallel_size": 2, "pipeline_parallel_num_microbatches": 2},
}


OTHERS: dict[str, dict[str, Any]] = {
    **{family: {} for family in ("granite", "olmo2", "qwen2")},
    "gemma": dict(head_dim=8),
    "mistral": dict(sliding_window=6),
    "mixtral": dict(num_local_experts=4),
    "smollm3": dict(pad_token_id=0),
    "gemma2": dict(head_dim=8, sliding_window=8, attn_implementation="eager"),
    "phi3": dict(pad_token_id=0),
    "qwen3": dict(head_dim=8),
    "qwen3_moe": dict(head_dim=8, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=32),
}
"""Decoders of other families, by the first part of a case's name, with their required configuration."""


def model_and_rows(name: str) -> tuple[Any, list[dict[str, torch.Tensor]]]:
    """A model without dropout, and examples of different lengths; "small" has one layer, for compiled graphs."""
    torch.manual_seed(0)
    ids = torch.randint(0, SIZES["vocab_size"], (256, 16))
    if name.startswith("bert"):
        plain = dict(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
        config = transformers.BertConfig(**SIZES, **plain, num_labels=3)
        rows = [{"input_ids": row, "labels": row[0] % 3} for row in ids]
        return transformers.BertForSequenceClassification(config), rows
    family = name.partition("-")[0]
    common = dict(**SIZES, num_key_value_heads=2, tie_word_embeddings=family.startswith("tied"))
    common["num_hidden_layers"] = 1 if family == "small" else 2
    model_type = family if family in OTHERS else "llama"
    config = transformers.AutoConfig.for_model(model_type, **common, **OTHERS.get(family, {}))
    model = transformers.AutoModelForCausalLM.from_config(config)
    labels = [row.where(torch.arange(16) > i % 5, -100) for i, row in enumerate(ids)]
    rows = [{"input_ids": row, "labels": label} for row, label in zip(ids, labels, strict=True)]
    if family == "padded":
        # The second half of the rows from the right, over more than one core's part.
        masks = [(torch.arange(16) > i % 5) if i % 2 else (torch.arange(16) < 5 + i % 5) for i in range(len(rows))]
        rows = [
            {**row, "attention_mask": mask.long(), "labels": row["labels"].where(mask, -100)}
            for row, mask in zip(rows, masks, strict=True)
        ]
    return model, rows


ADAPTERS: dict[str, dict[str, Any]] = {
    "lora": dict(r=4, target_modules="all-linear"),
    "tied_lora": dict(r=4, target_modules="all-linear"),
    "saved": dict(r=4, target_modules=["q_proj"], modules_to_save=["lm_head"]),
    "dora": dict(r=4, target_modules=["q_proj", "down_proj"], use_dora=True),
}
"""Settings of LoRA, by the first part of a case's name."""


def model_of(case: str) -> tuple[Any, list[dict[str, torch.Tensor]]]:
    """The model of a case, and its examples: an adapter begins with differences from its model."""
    model, rows = model_and_rows(case)
    kind = case.partition("-")[0]
    if kind == "bfloat16":
        model.to(torch.bfloat16)
    if kind in ADAPTERS:
        from peft import LoraConfig, get_peft_model

        model = get_peft_model(model, LoraConfig(**ADAPTERS[kind], task_type="CAUSAL_LM"))
        torch.manual_seed(1)
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                torch.nn.init.normal_(parameter, std=0.1)
    return model, rows


def trainer_of(case: str, folder: Path, num_steps: int, *, make_model: Any = None, **changes: Any) -> Any:
    """A trainer of one case: a layout, after the kind of model and a dash if it is not a Llama in float32."""
    from accelerate.state import AcceleratorState

    # A process usually has one layout; upstream keeps the last one.
    AcceleratorState._reset_state()
    os.environ.pop("ACCELERATE_USE_FSDP", None)
    world_size = int(os.environ.get("WORLD_SIZE", "0"))
    layout = dict(CASES[case.rpartition("-")[2]]) if world_size else {}
    together = math.prod(size for name, size in layout.items() if name.endswith("_parallel_size"))
    model, rows = (make_model or model_of)(case)
    options: dict[str, Any] = dict(max_steps=num_steps, learning_rate=1e-3, seed=7, **layout)
    options["per_device_train_batch_size"] = BATCH * together // max(world_size, 1)
    options["upstream"] = not world_size and not case.startswith("bfloat16")
    return make_trainer(folder / case, model, rows, **{**options, **changes})


def trained(case: str, folder: Path, num_steps: int, **changes: Any) -> list[float]:
    """The losses of a run's steps, then the norms of their gradients: Adam forgives a wrong factor, norms do not."""
    trainer = trainer_of(case, folder, num_steps, **changes)
    trainer.train()
    return losses(trainer) + [entry["grad_norm"] for entry in trainer.state.log_history if "grad_norm" in entry]


def resumed(case: str, folder: Path, num_steps: int, **changes: Any) -> dict[str, Any]:
    """Losses of a run that saves and evaluates, and of one that resumes from it."""
    options = dict(save_strategy="steps", save_steps=num_steps - 1, max_grad_norm=0.5, gradient_accumulation_steps=2)
    options |= {"per_device_train_batch_size": BATCH // 2, **changes}
    trainer, second = (trainer_of(case, folder, num_steps, **options) for _ in range(2))
    trainer.train()
    checkpoint = folder / case / f"checkpoint-{num_steps - 1}"
    second.train(resume_from_checkpoint=str(checkpoint))
    evaluation = second.evaluate(model_and_rows(case)[1][:16])["eval_loss"]
    return {
        "whole": losses(trainer),
        "resumed": losses(second),
        "checkpoint": str(checkpoint),
        "evaluation": evaluation,
    }


def measured(case: str, folder: Path, num_steps: int) -> dict[str, Any]:
    """Results of evaluate and predict on rows that are not a multiple of a batch, with custom metrics."""

    def metrics(prediction: Any) -> dict[str, float]:
        right = prediction.predictions.argmax(-1) == prediction.label_ids
        return {
            "rows": len(prediction.label_ids),
            "right": int(right.sum()),
            "logits": float(prediction.predictions.sum()),
        }

    trainer = trainer_of(case, folder, num_steps, per_device_eval_batch_size=4)
    trainer.compute_metrics = metrics
    rows = model_and_rows(case)[1][:13]
    prediction = trainer.predict(rows)
    unlabelled = trainer.predict([{"input_ids": row["input_ids"]} for row in rows])
    return {
        "evaluate": trainer.evaluate(rows),
        "predict": prediction.metrics,
        "shapes": [
            list(value.shape) for value in (prediction.predictions, prediction.label_ids, unlabelled.predictions)
        ],
        "first": prediction.predictions[:, 0, 0].tolist() if prediction.predictions.ndim == 3 else [],
    }


def moved(case: str, folder: Path, num_steps: int) -> dict[str, Any]:
    """Losses of a run, and of one with another layout (behind ">") that resumes from it."""
    case, _, other = case.partition(">")
    kind = case.rpartition("-")[0]
    first = trainer_of(case, folder, num_steps, save_strategy="steps", save_steps=num_steps - 1)
    first.train()
    second = trainer_of(f"{kind}-{other}" if kind else other, folder, num_steps)
    second.train(resume_from_checkpoint=str(folder / case / f"checkpoint-{num_steps - 1}"))
    return {"whole": losses(first), "moved": losses(second)}


def details_of(kind: type[Exception], run: Callable[[], object]) -> dict[str, Any]:
    """Return the details of the error that each process raises."""
    try:
        run()
    except kind as error:
        return {"message": str(error), **error.details}
    raise AssertionError(f"no {kind.__name__}")


def disagreeing(case: str, folder: Path, num_steps: int) -> dict[str, Any]:
    """The error of processes with different arguments."""
    size = 2 + int(os.environ["RANK"])
    return details_of(ConfigError, lambda: trainer_of(case, folder, num_steps, per_device_train_batch_size=size))


def uneven(case: str, folder: Path, num_steps: int) -> dict[str, Any]:
    """The error of processes with data sets of different lengths."""
    trainer = trainer_of(case, folder, num_steps)
    trainer.train_dataset = trainer.train_dataset[: 8 + int(os.environ["RANK"])]
    return details_of(ConfigError, trainer.train)


def narrow(case: str, folder: Path, num_steps: int) -> dict[str, Any]:
    """Return the results of `resumed` with 16-bit gradients; one process has the rows of two."""
    changes = {"per_device_train_batch_size": BATCH // int(os.environ.get("WORLD_SIZE", "1"))}
    return resumed(case, folder / "narrow", num_steps, optimizer_use_fp32_grad_acc=False, **changes)


def rounded(case: str, folder: Path, num_steps: int) -> list[float]:
    """The losses and norms of a run that rounds at random."""
    return trained(case, folder, num_steps, stochastic_rounding_enabled=True)


def compiled(case: str, folder: Path, num_steps: int) -> dict[str, Any]:
    """The losses and norms of a run with compiled graphs, and the kinds of graphs."""
    report = torch.neuron.compile_report
    torch._dynamo.reset()
    return {
        "losses": trained(case, folder, num_steps, torch_compile=True),
        "kinds": sorted(graph.kind for graph in report().graphs),
        "breaks": report().breaks,
    }


def graphs(case: str, folder: Path, num_steps: int) -> dict[str, Any]:
    """The results of `compiled` without a C++ compiler: operators of a graph run one by one."""
    with mock.patch("optimum_neuron.device.dynamo.backend.probe_compiler", lambda: None):
        return compiled(case, folder, num_steps)


def poisoned(case: str, folder: Path, num_steps: int) -> dict[str, Any]:
    """The error of each process if a weight of the last layer is infinite."""

    def poison(name: str) -> tuple[Any, Any]:
        model, rows = model_and_rows(name)
        model.model.layers[-1].mlp.down_proj.weight.data[0, 0] = float("inf")
        return model, rows

    return details_of(NumericsError, trainer_of(case, folder, num_steps, make_model=poison).train)


def dying(case: str, folder: Path, num_steps: int) -> None:
    """The last process fails in its second step."""

    class Death(transformers.TrainerCallback):
        def on_step_begin(self, args: Any, state: Any, control: Any, **keywords: Any) -> None:
            if state.global_step == 1 and args.process_index == args.world_size - 1:
                raise MemoryError("no memory on this rank")

    trainer = trainer_of(case, folder, num_steps)
    trainer.add_callback(Death())
    trainer.train()


KINDS: dict[str, Any] = {
    kind.__name__: kind
    for kind in (resumed, moved, measured, narrow, rounded, compiled, graphs, poisoned, disagreeing, uneven, dying)
}
"""Functions for layouts that are not only trained, by the first part of a case's name."""


def main() -> None:
    folder, num_steps, cases = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]
    results = {}
    for case in cases:
        kind, _, name = case.partition("-")
        results[case] = KINDS[kind](name, folder, num_steps) if kind in KINDS else trained(case, folder, num_steps)
        if len(results) == 1:
            gc.freeze()  # accelerate collects garbage for every trainer; what is imported by now is none
    if int(os.environ.get("RANK", "0")) == 0:
        (folder / f"losses-{os.environ.get('WORLD_SIZE', '0')}.json").write_text(json.dumps(results))
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
