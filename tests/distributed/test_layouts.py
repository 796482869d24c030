"""Losses of distributed runs match transformers' Trainer on the CPU; processes are started once for all cases.

A day has a fourteenth of the cases: `@pytest.mark.runs` names those that a test reads.

`python -m tests.distributed.fifty_steps` takes 50 steps.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from optimum_neuron.distributed.plans import CONTEXT_FAMILIES
from tests import warm
from tests.distributed.layouts import model_and_rows, model_of
from tests.trainer.conftest import losses, spawn

pytestmark = pytest.mark.full(days=14)
NUM_STEPS = 2
TOLERANCE = 1e-4

NARROW_TOLERANCE = 2e-3
"""For 16-bit weights, whose products are rounded in other places."""

TWO = (
    *("dp", "zero_1", "fsdp", "tp", "tied-tp", "bert-tp", "pp", "sp", "tied-pp"),
    *("lora-tp", "lora-sp", "lora-pp", "lora-zero_1", "lora-fsdp", "saved-tp", "tied_lora-pp"),
    *("dora-zero_1", "dora-fsdp", "dora-pp"),
    *("qwen3-sp", "gemma2-sp", "phi3-tp", "qwen3_moe-tp"),
    *("cp", "padded-cp", "lora-cp", "dora-cp", *(f"{family}-cp" for family in sorted(CONTEXT_FAMILIES - {"llama"}))),
    *("bfloat16-dp", "bfloat16-fsdp", "bfloat16-tp", "bfloat16-pp"),
)
"""Cases of two processes."""
FOUR = (
    *("tp", "pp", "tp_zero_1", "tp_fsdp", "pp_zero_1", "pp_fsdp", "sp_zero_1", "sp_fsdp", "sp_pp"),
    *("cp", "cp_zero_1", "cp_fsdp", "cp_sp", "cp_pp", "padded-cp_pp", "bfloat16-cp_tp"),
    *("lora-tp_pp", "tied_lora-tp_pp", "bfloat16-tp_pp", "bfloat16-sp_zero_1"),
    *("tied-pp_fsdp", "tied-pp_zero_1", "tied-tp_pp"),
)
"""Of four: two that share layers or are stages, twice."""
REFERENCES = (
    *("tp", "small-tp", "tied-tp", "bert-tp", "lora-tp", "saved-tp", "dora-tp", "bfloat16-tp", "tied_lora-tp"),
    *("gemma2-tp", "padded-tp", *(f"{family}-tp" for family in sorted(CONTEXT_FAMILIES - {"llama"}))),
)
"""On one core, by the kind of model; the layout is left out."""
SAVED = ("tp", "zero_1", "pp", "tied-pp")
"""Cases whose checkpoints are inspected."""
RESUMED = (*SAVED, "dp", "tied-tp", "qwen3_moe-tp", "lora-pp", "bfloat16-tp", "bfloat16-dp")
"""Cases that resume from their checkpoints."""
MOVED = (
    *("tp>pp", "cp>tp", "sp>zero_1", "lora-pp>tp", "bfloat16-tp>zero_1", "bfloat16-fsdp>pp"),
    *("tied-pp>tp", "tied-tp>pp"),
)
"""Cases that resume from checkpoints of another layout."""
COMPILED = ("graphs-small-sp", "graphs-pp", "graphs-small-zero_1", "graphs-small-cp")
"""Cases with compiled graphs, without Inductor's code, which takes a minute: `fifty_steps.py` has one with it."""
MEASURED = ("dp", "zero_1", "tp", "bert-tp", "sp", "pp", "cp")
"""Cases that evaluate with metrics."""
APART = ("disagreeing-zero_1", "disagreeing-dp", "uneven-dp")
"""Cases whose processes have different arguments or data."""
POISONED = ("tp", "pp", "cp")
"""Cases with an infinite weight."""


def launch(folder: Path, num_processes: int, num_steps: int, *cases: str, launcher: str | None = None) -> Any:
    """Run `layouts.py` in processes with a core each, or, with 0, in one without."""
    words = ("-m", "tests.distributed.layouts", str(folder), str(num_steps), *cases)
    if num_processes == 0:
        # A separate instance: this process may have the first core of the default one.
        return warm.run(*words, env={**os.environ, "OPTIMUM_NEURON_INSTANCE": warm.SEPARATE_INSTANCE})
    return spawn(*words, num_processes=num_processes, launcher=launcher)


def run_cases(folder: Path, num_processes: int, num_steps: int, cases: tuple[str, ...]) -> dict[str, Any]:
    """Return the results of rank 0 for each case."""
    result = launch(folder, num_processes, num_steps, *cases)
    assert result.returncode == 0, result.stderr[-5000:]
    results: dict[str, Any] = json.loads((folder / f"losses-{num_processes}.json").read_text())
    return results


@pytest.fixture(scope="module")
def reference(built, tmp_path_factory):
    more = ("measured-tp", "measured-bert-tp", "narrow-bfloat16-tp")
    return run_cases(tmp_path_factory.mktemp("one"), 0, NUM_STEPS, (*REFERENCES, *more))


def cases_of(request: pytest.FixtureRequest) -> tuple[str, ...]:
    """Cases of the tests that will use a fixture of processes: a day's sample, or what -k leaves."""
    found: dict[str, None] = {}
    for item in request.session.items:
        if item.path == request.path and request.fixturename in getattr(item, "fixturenames", ()):
            parameters = item.callspec.params if hasattr(item, "callspec") else {}
            marker = item.get_closest_marker("runs")
            found |= dict.fromkeys(case.format(**parameters) for case in marker.args)
    return tuple(found)


@pytest.fixture(scope="module")
def two(request, built, tmp_path_factory):
    return run_cases(tmp_path_factory.mktemp("two"), 2, NUM_STEPS, cases_of(request))


@pytest.fixture(scope="module")
def four(request, built, tmp_path_factory):
    return run_cases(tmp_path_factory.mktemp("four"), 4, NUM_STEPS, cases_of(request))


def expected(reference, case):
    """Losses and norms of one core, and how far others may be from them."""
    kind = case.rpartition("-")[0]
    values = reference[f"{kind}-tp" if kind else "tp"]
    assert len(values) == 2 * NUM_STEPS
    return pytest.approx(values, abs=NARROW_TOLERANCE if kind == "bfloat16" else TOLERANCE)


@pytest.mark.runs("{case}")
@pytest.mark.parametrize("case", TWO)
def test_two_processes(two, reference, case):
    assert two[case] == expected(reference, case)


@pytest.mark.runs("{case}")
@pytest.mark.parametrize("case", FOUR)
def test_four_processes(four, reference, case):
    assert four[case] == expected(reference, case)


@pytest.mark.runs("{case}")
@pytest.mark.parametrize("case", COMPILED)
def test_compiled_steps(two, reference, case):
    assert two[case]["losses"] == expected(reference, case.partition("-")[2])


@pytest.mark.runs("{case}")
@pytest.mark.parametrize("case", ["graphs-small-sp", "graphs-pp"])
def test_tensor_and_pipeline_parallel_layers_are_full_graphs(two, case):
    assert two[case]["kinds"] == ["backward", "forward"] and not two[case]["breaks"]


@pytest.mark.runs("narrow-bfloat16-dp", "resumed-bfloat16-dp")
def test_gradients_of_16_bits(two, reference):
    run, one = two["narrow-bfloat16-dp"], reference["narrow-bfloat16-tp"]
    assert run["whole"] == pytest.approx(one["whole"], abs=0.02) and run["resumed"] == run["whole"]
    assert run["whole"] != two["resumed-bfloat16-dp"]["whole"]


@pytest.mark.runs("bert-fsdp")
def test_embeddings_are_split_once(two, reference):
    # Upstream multiplies by the number of processes, also an average over rows.
    twice = [2 * value for value in reference["bert-tp"]]
    assert two["bert-fsdp"] == pytest.approx(twice, abs=TOLERANCE)


@pytest.mark.runs("resumed-{case}")
@pytest.mark.parametrize("case", RESUMED)
def test_resumed_run_matches_uninterrupted_run(two, case):
    run = two[f"resumed-{case}"]
    assert run["resumed"] == run["whole"] and len(run["whole"]) == NUM_STEPS
    written = {path.name for path in Path(run["checkpoint"]).parent.iterdir()}
    assert written == {f"checkpoint-{NUM_STEPS - 1}", f"checkpoint-{NUM_STEPS}"}


@pytest.mark.runs("moved-{case}")
@pytest.mark.parametrize("case", MOVED)
def test_checkpoint_loads_into_another_layout(two, case):
    run = two[f"moved-{case}"]
    assert run["moved"] == pytest.approx(run["whole"], abs=TOLERANCE)


@pytest.mark.runs("resumed-{case}")
@pytest.mark.parametrize("case", SAVED)
def test_checkpoint_is_plain_folder_with_same_evaluation(two, case):
    run = two[f"resumed-{case}"]
    folder = Path(run["checkpoint"])
    config = json.loads((folder / "config.json").read_text())
    assert not {name for name in config if "distributed" in name or "tp_" in name}
    assert not (folder / "optimizer.pt").exists() and (folder / "optimizer" / ".metadata").is_file()
    last = folder.with_name(f"checkpoint-{NUM_STEPS}")
    model, report = AutoModelForCausalLM.from_pretrained(last, output_loading_info=True)
    assert not report["missing_keys"] and not report["unexpected_keys"] and model.config.num_hidden_layers == 2
    assert run["evaluation"] == pytest.approx(loss_of(model, 16 if case == "zero_1" else 8), abs=1e-4)


def require_same_results(actual, reference, *, same_loss):
    """Rows count once, whatever the layout; losses of several batches at once are averaged in another way."""
    assert actual["shapes"] == reference["shapes"]
    assert actual["first"] == pytest.approx(reference["first"], abs=1e-5)
    for name in ("rows", "right", "logits", *(["loss"] if same_loss else [])):
        assert actual["evaluate"][f"eval_{name}"] == pytest.approx(reference["evaluate"][f"eval_{name}"], abs=1e-4)
        assert actual["predict"][f"test_{name}"] == pytest.approx(reference["predict"][f"test_{name}"], abs=1e-4)


@pytest.mark.runs("measured-{case}")
@pytest.mark.parametrize("case", MEASURED)
def test_metrics_and_predictions(two, reference, case):
    expected_output = reference["measured-bert-tp" if case.startswith("bert") else "measured-tp"]
    require_same_results(two[f"measured-{case}"], expected_output, same_loss=case not in ("dp", "zero_1"))


@pytest.mark.runs("measured-tp")
def test_metrics_of_tensor_parallel_replicas(four, reference):
    require_same_results(four["measured-tp"], reference["measured-tp"], same_loss=False)


@pytest.mark.runs("rounded-bfloat16-tp", "bfloat16-tp")
def test_stochastic_rounding_of_sharded_weights(two, reference):
    rounded, nearest = two["rounded-bfloat16-tp"], two["bfloat16-tp"]
    assert rounded != nearest and rounded == pytest.approx(nearest, abs=2 * NARROW_TOLERANCE)


@pytest.mark.runs("poisoned-{case}")
@pytest.mark.parametrize("case", POISONED)
def test_non_finite_number_is_detected(two, case):
    error = two[f"poisoned-{case}"]
    assert error["step"] == 1 and "first in model.layers.1.mlp.down_proj" in error["message"]


@pytest.mark.runs("resumed-lora-pp")
def test_adapter_of_stages_is_loaded_by_plain_peft(two):
    from peft import PeftModel

    folder = Path(two["resumed-lora-pp"]["checkpoint"])
    model = PeftModel.from_pretrained(model_and_rows("tp")[0], folder.with_name(f"checkpoint-{NUM_STEPS}"))
    assert two["resumed-lora-pp"]["evaluation"] == pytest.approx(loss_of(model, 8), abs=1e-4)


@pytest.mark.runs("resumed-bfloat16-tp")
def test_16_bit_weights_are_saved_unchanged(two):
    folder = two["resumed-bfloat16-tp"]["checkpoint"]
    assert AutoModelForCausalLM.from_pretrained(folder).dtype == torch.bfloat16
    assert Path(folder, "master_weights", ".metadata").is_file()


def loss_of(model: Any, batch_size: int) -> float:
    """Of the rows that `layouts.resumed` evaluates, as a mean of batches; batches of several processes are one."""
    rows = model_and_rows("tp")[1][:16]
    parts = [rows[start : start + batch_size] for start in range(0, len(rows), batch_size)]
    batches = [{name: torch.stack([row[name] for row in part]) for name in part[0]} for part in parts]
    with torch.no_grad():
        return sum(float(model(**batch).loss) for batch in batches) / len(batches)


@pytest.mark.runs("resumed-{case}")
@pytest.mark.parametrize("case", [*SAVED, "dp", "lora-pp", "bfloat16-tp"])
def test_one_core_resumes_from_shards(two, train, case):
    run = two[f"resumed-{case}"]
    model, rows = model_of(case)
    options = dict(max_steps=NUM_STEPS, learning_rate=1e-3, seed=7, max_grad_norm=0.5)
    options |= {"gradient_accumulation_steps": 2, "per_device_train_batch_size": 8 if case in ("dp", "zero_1") else 4}
    trainer = train(model, rows, resume=run["checkpoint"], **options)
    assert losses(trainer)[-1] == pytest.approx(run["whole"][-1], abs=1e-4)


@pytest.mark.runs(*APART)
def test_processes_with_different_arguments_or_data(two):
    for case in ("disagreeing-zero_1", "disagreeing-dp"):
        assert two[case]["differing"] == {"per_device_train_batch_size": [2, 3]}
    assert two["uneven-dp"]["differing"] == {"rows of the training data set": [8, 9]}


@pytest.mark.parametrize(("case", "launcher"), [("tp", "torchrun"), ("pp", "accelerate")])
def test_dying_process_ends_the_others(built, tmp_path, case, launcher):
    result = launch(tmp_path, 2, NUM_STEPS, f"dying-{case}", launcher=launcher)
    assert result.returncode != 0 and "MemoryError: no memory on this rank" in result.stderr
