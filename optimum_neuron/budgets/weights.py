"""Values of a budget that the weights of a model decide: it is compiled, run, and compared with transformers.

They take a compile and a run, so they are measured where a limit asks for them, and recorded by the content of the
checkpoint's files.

    weights_content(entry, by)               # what they follow from
    measure_weights(entry, by, options)      # max_abs_error, num_equal_tokens
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from ..errors import ValidationError
from .config import Entry
from .limits import By, Value

NUM_GREEDY = 64
"""Tokens that an answer has, if the compiled length leaves room for them."""
PROMPT = "The capital of Japan is"
"""Prompt of models that have a tokenizer; others read the first tokens of the vocabulary."""


def weights_content(entry: Entry, by: Collection[By]) -> dict[str, Any]:
    """Return everything that these values follow from, but options and versions."""
    from ..compiler.lower import probe_cpu
    from ..exporters import checkpoint_files
    from ..sources import find_folder

    return {"by": sorted(by), "files": checkpoint_files(find_folder(entry.subject)), "cpu": str(probe_cpu())}


def measure_weights(entry: Entry, by: Collection[By], options: Mapping[str, Any]) -> dict[str, Any]:
    """Return `values` of a compiled model, and the `problem` that left them out, if there was one.

    Args:
        by: what to measure, "validation", "tokens", or both.
        options: keywords of its export.

    Raises:
        NeuronError: the model cannot be compiled, or an option is wrong.
    """
    from ..modeling import NeuronModel, NeuronModelForCausalLM

    model_class = NeuronModelForCausalLM if "tokens" in by else NeuronModel
    is_validated = "validation" in by
    try:
        # Level 1 unless the budget says otherwise: the values do not wait for compiled host code.
        model = model_class.from_pretrained(
            entry.subject, export=True, disable_validation=not is_validated, **{"optlevel": "1", **options}
        )
    except ValidationError as error:
        return {"values": {"validated": False}, "problem": error.message}
    values: dict[str, Value] = {}
    with model:
        if is_validated:
            values["validated"] = True
            values["max_abs_error"] = max(row["max_abs_error"] for row in model.describe()["validation"])
        if "tokens" in by:
            values["num_equal_tokens"] = _num_equal_tokens(model, model.source_folder)
    return {"values": values}


def _num_equal_tokens(model: Any, folder: Path) -> int:
    """Return how many greedy tokens come before the first that transformers, in float32, would not write."""
    import torch
    from transformers import AutoModelForCausalLM

    from ..exporters import token_ids

    reference = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    ids = token_ids(folder, PROMPT)
    if ids is None:
        ids = torch.arange(8)[None] % model.config.vocab_size
    num_tokens = min(NUM_GREEDY, model.neuron_config.sequence_length - ids.shape[1])
    options: dict[str, Any] = {
        "attention_mask": torch.ones_like(ids),
        "do_sample": False,
        "num_beams": 1,
        "min_new_tokens": num_tokens,
        "max_new_tokens": num_tokens,
        "pad_token_id": 0,
    }
    with torch.no_grad():
        written, expected = (one.generate(ids, **options)[0, ids.shape[1] :] for one in (model, reference))
    differs = (written != expected).nonzero()
    return int(differs[0]) if len(differs) else num_tokens
