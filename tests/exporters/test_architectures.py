"""Every architecture, exported in float32, answers token for token as transformers does, padded rows included.

Each checkpoint is exported once; the tests of one architecture share it.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from optimum_neuron import NeuronModelForCausalLM
from optimum_neuron.compiler.lower import probe_compiler
from optimum_neuron.exporters.validation import compare
from optimum_neuron.models import families
from optimum_neuron.upstream.cache_argument import CACHE
from tests.tiny import CONFIGS, FAMILY_CONFIGS, VOCABULARY, save_tiny

pytestmark = pytest.mark.full(days=10, by="pair")
LENGTH, NUM_NEW = 160, 64
SHAPES = {"batch_size": 2, "sequence_length": LENGTH, "prefill_buckets": (16,), "torch_dtype": "float32"}
PROMPT_COLUMNS, NUM_PADDING = 10, 4
"""The second row is padded on the left, so that its positions differ from its columns."""


@dataclasses.dataclass(frozen=True)
class Pair:
    """A compiled model and its reference model."""

    folder: Path
    compiled: NeuronModelForCausalLM
    original: Any


def export(folder: Path, model_type: str, **options: Any) -> Pair:
    save_tiny(folder, model_type, max_position_embeddings=LENGTH)
    compiled_model = NeuronModelForCausalLM.from_pretrained(
        folder, export=True, **{**SHAPES, "optlevel": "1", **options}
    )
    return Pair(folder, compiled_model, AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval())


COMPILED_FAMILIES = {name: FAMILY_CONFIGS[name] for name in ("gemma2", "olmo2", "falcon", "bloom", "mpt", "gptj")}
"""Families whose blocks no model of `CONFIGS` has; `tests/models/test_families.py` compares the logits of all."""


@pytest.fixture(scope="module", params=CONFIGS | COMPILED_FAMILIES)
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    return export(tmp_path_factory.mktemp(request.param) / "checkpoint", request.param)


def prompt() -> dict[str, torch.Tensor]:
    ids = torch.randint(3, VOCABULARY, (2, PROMPT_COLUMNS), generator=torch.Generator().manual_seed(1))
    mask = torch.ones_like(ids)
    mask[1, :NUM_PADDING] = 0
    return {"input_ids": ids, "attention_mask": mask}


def check_greedy(pair: Pair) -> None:
    """The greedy tokens are equal; otherwise report the first difference and the distance of the logits."""
    options = {**prompt(), "max_new_tokens": NUM_NEW, "do_sample": False, "pad_token_id": 0, "eos_token_id": None}
    options |= {"return_dict_in_generate": True, "output_logits": True}
    result, expected = pair.compiled.generate(**options), pair.original.generate(**options)
    assert expected.sequences.shape == (2, PROMPT_COLUMNS + NUM_NEW)
    assert len(set(expected.sequences[:, PROMPT_COLUMNS:].flatten().tolist())) > 8, (
        "too monotonous to tell a difference"
    )
    if torch.equal(result.sequences, expected.sequences):
        return
    lines = []
    for row in range(2):
        unequal = (result.sequences[row] != expected.sequences[row]).nonzero().flatten().tolist()
        num_equal = (unequal[0] if unequal else expected.sequences.shape[1]) - PROMPT_COLUMNS
        logits = [torch.stack([step[row] for step in run.logits[: num_equal + 1]]) for run in (result, expected)]
        error = compare(f"row {row}", *logits, tolerance=0.0)
        lines.append(
            f"{error.output}: {num_equal} equal tokens, logits until then: max {error.max_abs_error:.3g}, "
            f"mean {error.mean_abs_error:.3g}, SQNR {error.sqnr_db:.1f} dB, top-1 {error.top1_agreement:.1%}"
        )
    pytest.fail("\n".join(lines))


def test_greedy_tokens_match_transformers(pair):
    check_greedy(pair)


def test_report_names_compiled_parts_and_weight_sources(pair):
    model_type, report = pair.original.config.model_type, pair.compiled.describe()
    names = [name for name, module in families().items() if model_type in module.MODEL_TYPES]
    assert report["family"]["value"] == (names or ["generic"])[0] and model_type in report["family"]["reason"]
    converted = model_type in ("gpt_neox", "mixtral")
    assert ("loaded by transformers" if converted else "mapped from") in report["weights"]["reason"]
    (layers,) = [choice for path, choice in report["layers"].items() if path.endswith(("layers", ".h"))]
    assert layers["value"] <= pair.original.config.num_hidden_layers and layers["reason"]
    assert all(row["ok"] for row in report["validation"])


def test_cache_holds_tokens_that_later_ones_see(pair):
    with torch.no_grad():
        cached = pair.original(prompt()["input_ids"], use_cache=True)[CACHE].layers
    # A ring has room for the tokens that one call adds, before it replaces those that they see.
    num_added = pair.compiled.neuron_config.extend_length
    expected = 0
    for layer in cached:
        num_slots = min(LENGTH, layer.sliding_window + num_added - 1) if layer.is_sliding else LENGTH
        expected += sum(t.nbytes // t.shape[2] * num_slots for t in (layer.keys, layer.values))
    actual = pair.compiled.describe()["hbm_bytes"]["kv_cache"]
    # transformers caches a copy of Falcon's keys for each query head.
    assert actual == expected or (pair.original.config.model_type == "falcon" and actual < expected)


def test_folder_round_trips_and_is_checkpoint_for_transformers(pair, tmp_path):
    pair.compiled.save_pretrained(tmp_path)
    ids = prompt()["input_ids"]
    loaded_model = NeuronModelForCausalLM.from_pretrained(tmp_path)(ids).logits
    assert torch.equal(loaded_model, pair.compiled(ids).logits)
    plain, loading_info = AutoModelForCausalLM.from_pretrained(tmp_path, output_loading_info=True)
    assert not loading_info["missing_keys"] and not loading_info["unexpected_keys"]
    with torch.no_grad():
        assert torch.equal(plain(ids).logits, pair.original(ids).logits)


def test_llama_through_generic_path(tmp_path):
    pair = export(tmp_path, "llama", family="generic")
    assert pair.compiled.describe()["family"]["reason"] == "asked for by name"
    check_greedy(pair)


@pytest.mark.skipif(probe_compiler() is None, reason="-O2 needs a C++ compiler (apt-get install g++)")
def test_llama_with_ahead_of_time_compiled_layers_o2(tmp_path):
    """The slowest test of this file: Inductor and the C++ compiler make four bodies, half a minute on one core."""
    pair = export(tmp_path, "llama", optlevel="2", extend_length=1, wait_for_host_code=True)
    assert "inductor" in {choice.value for choice in pair.compiled.prepared.host.choices.values()}
    assert pair.compiled.prepared.host.num_compiled == 4
    check_greedy(pair)
