"""Compare every causal language model of transformers with its compiled form, and write `docs/decoders.md`.

`python -m tests.models.coverage` measures what has no result yet; names measure these again. Every architecture runs in
a separate process. The page lists all architectures, those without a result too.
"""

from __future__ import annotations

import copy
import dataclasses
import tempfile
import time
import traceback
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from optimum_neuron import NeuronModelForCausalLM
from optimum_neuron.errors import NeuronError
from optimum_neuron.models import choose_family
from tests.models.tiny_decoders import VOCABULARY, tiny_decoder, tiny_decoder_config
from tests.study import Result, Study, error_line, main, plain

PROMPT_LENGTHS, NUM_NEW_TOKENS = (5, 20), 16
TOLERANCE = 1e-5
"""Largest difference of logits in an exact result, as a part of the largest logit, or of 1 where that is more."""
OPTIONS: dict[str, Any] = {
    "optlevel": "1",
    "sequence_length": 64,
    "batch_size": 1,
    "torch_dtype": "float32",
    "prefill_buckets": (32,),
    "decode_buckets": (64,),
    "extend_length": 1,
    # What it would compare is compared here.
    "disable_validation": True,
}
OUTCOMES = {
    "exact": "the same greedy tokens and logits as transformers; "
    "a reason says where logits equal another computation of it",
    "differs": "other tokens or logits than transformers",
    "refused": "the export refuses it, for the reason in the table",
    "crash": "an error that is not a refusal, or the time limit",
    "no reference": "transformers itself does not run a tiny configuration of it as a causal language model",
    "not measured": "no result yet",
}
"""Outcome to what it means."""


def names() -> list[str]:
    """Every model type that transformers maps to a causal language model."""
    # Compiled models are registered there too.
    return sorted(name for name in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES if name in CONFIG_MAPPING_NAMES)


def measure(architecture: str) -> Result:
    """Run a tiny model of an architecture through transformers and compiled, and compare."""
    start = time.perf_counter()
    result = _measure(architecture)
    return dataclasses.replace(result, seconds=round(time.perf_counter() - start, 1))


def _measure(architecture: str) -> Result:
    try:
        reference = tiny_decoder(architecture)
        expected = [_generate(reference, length) for length in PROMPT_LENGTHS]
    except Exception as error:
        return Result(name=architecture, outcome="no reference", reason=error_line(error))
    num_distinct = expected[-1][0].unique().numel()
    path = ""
    try:
        path = choose_family(reference.config).value
        with tempfile.TemporaryDirectory() as folder:
            reference.save_pretrained(folder)
            if reference.config.model_type != architecture:
                # A model that is part of another one, whose configuration a checkpoint of this architecture has.
                tiny_decoder_config(architecture).save_pretrained(folder)
            model = NeuronModelForCausalLM.from_pretrained(folder, export=True, **OPTIONS)
            found = [_generate(model, length) for length in PROMPT_LENGTHS]
    except NeuronError as error:
        return Result(name=architecture, outcome="refused", path=path, reason=plain(error.message))
    except Exception as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        reason = f"{error_line(error)} ({Path(place.filename).name}:{place.lineno})"
        return Result(name=architecture, outcome="crash", path=path, reason=reason)
    return dataclasses.replace(
        _compare(reference, expected, found), name=architecture, path=path, num_distinct=num_distinct
    )


Generation = tuple[torch.Tensor, torch.Tensor]
"""Tokens, and the logits of each."""


def _compare(reference: Any, expected: list[Generation], found: list[Generation]) -> Result:
    """Compare with transformers' steps, and where only logits differ with its pass over the whole sequence.

    Steps of some architectures compute what the pass does not: those of Mamba 2 do not limit the time step. Logits of
    some tokens follow the rounding of every weight: nothing nearer than that can be asked for.
    """
    limit = TOLERANCE * max(1.0, *(float(logits.abs().max()) for _, logits in expected))
    steps_diff = _max_diff(expected, found)
    if not all(torch.equal(a[0], b[0]) for a, b in zip(expected, found, strict=True)):
        return Result(name="", outcome="differs", max_diff=steps_diff, reason="other tokens")
    if steps_diff <= limit:
        return Result(name="", outcome="exact", max_diff=steps_diff)
    whole = _whole_passes(reference, expected)
    diff, own_diff = _max_diff(whole, found), _max_diff(whole, expected)
    if diff <= limit:
        reason = f"as a pass of transformers over the whole sequence; its own steps differ from that by {own_diff:.1e}"
        return Result(name="", outcome="exact", max_diff=diff, reason=reason)
    by_rounding = max(_max_diff(whole, _whole_passes(_rounded(reference, seed), expected)) for seed in range(6))
    if diff <= 2 * by_rounding:
        reason = f"logits of transformers change by {by_rounding:.1e} if its weights are rounded in another way"
        return Result(name="", outcome="exact", max_diff=diff, reason=reason)
    return Result(name="", outcome="differs", max_diff=steps_diff, reason="same tokens, other logits")


def _rounded(reference: Any, seed: int) -> Any:
    """The same model with weights that differ by about the rounding of float32."""
    model, generator = copy.deepcopy(reference), torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(1 + torch.finfo(torch.float32).eps / 2 * torch.randn(parameter.shape, generator=generator))
    return model


def _max_diff(left: list[Generation], right: list[Generation]) -> float:
    return max(float((a[1] - b[1]).abs().max()) for a, b in zip(left, right, strict=True))


def _prompt(num_tokens: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(num_tokens)
    return torch.randint(3, VOCABULARY, (1, num_tokens), generator=generator)


def _whole_passes(reference: Any, expected: list[Generation]) -> list[Generation]:
    """Logits of the tokens that follow each prompt, all at once and without a cache."""
    passes = []
    for num_tokens, (tokens, _) in zip(PROMPT_LENGTHS, expected, strict=True):
        ids = torch.cat((_prompt(num_tokens), tokens[None]), 1)
        with torch.no_grad():
            logits = reference(ids[:, :-1], use_cache=False).logits[0, num_tokens - 1 :].float()
        passes.append((tokens, logits))
    return passes


def _generate(model: Any, num_prompt_tokens: int) -> Generation:
    """Greedy tokens after a prompt."""
    ids = _prompt(num_prompt_tokens)
    output = model.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        max_new_tokens=NUM_NEW_TOKENS,
        min_new_tokens=NUM_NEW_TOKENS,
        do_sample=False,
        return_dict_in_generate=True,
        output_logits=True,
    )
    return output.sequences[0, num_prompt_tokens:], torch.cat(output.logits).float()


STUDY = Study(
    names=names,
    measure=measure,
    module="tests.models.coverage",
    seconds=300.0,
    outcomes=OUTCOMES,
    page=Path(__file__).resolve().parents[2] / "docs" / "decoders.md",
    results=Path("build/decoders.jsonl"),
    title="Decoders that were compared with transformers",
    introduction=f"transformers {transformers.__version__} maps {{count}} model types to causal language models. A "
    "tiny random model of each (2 to 4 layers, hidden size 64, vocabulary of 128 tokens, float32) ran through "
    f"transformers and compiled, with `-O1` and `sequence_length=64`: {NUM_NEW_TOKENS} greedy tokens after prompts "
    f"of {' and '.join(map(str, PROMPT_LENGTHS))} tokens. This is about architectures: a published checkpoint may "
    "set options that its row does not cover, and every export compares the model itself with transformers.",
    difference="Difference is the largest one of all logits.",
    noun="Architecture",
    plural="Architectures",
    path_of=frozenset({"exact", "differs"}),
)

if __name__ == "__main__":
    transformers.logging.set_verbosity_error()
    main(STUDY, description=__doc__)
