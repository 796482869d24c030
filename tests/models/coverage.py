"""Compare every causal language model of transformers with its compiled form, and write `docs/decoders.md`.

`python -m tests.models.coverage` measures what has no result yet; names measure these again. Every architecture runs in
a separate process. The page lists all architectures, those without a result too.
"""

from __future__ import annotations

import argparse
import copy
import dataclasses
import functools
import json
import re
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
import transformers
from tqdm import tqdm
from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from optimum_neuron import NeuronModelForCausalLM
from optimum_neuron.errors import NeuronError
from optimum_neuron.models import choose_family
from tests import apart
from tests.models.tiny_decoders import VOCABULARY, tiny_decoder, tiny_decoder_config

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
PAGE = Path(__file__).resolve().parents[2] / "docs" / "decoders.md"
SECONDS = 300.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Result:
    """What one architecture came to."""

    architecture: str
    outcome: str
    path: str = ""
    """The family, or "generic"."""
    max_diff: float | None = None
    """Largest difference of logits."""
    num_distinct: int | None = None
    """Distinct tokens of the longest generation: one that repeats a token shows less."""
    reason: str = ""
    seconds: float = 0.0


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
        return Result(architecture=architecture, outcome="no reference", reason=_one_line(error))
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
        return Result(architecture=architecture, outcome="refused", path=path, reason=_plain(error.message))
    except Exception as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        reason = f"{_one_line(error)} ({Path(place.filename).name}:{place.lineno})"
        return Result(architecture=architecture, outcome="crash", path=path, reason=reason)
    return dataclasses.replace(
        _compare(reference, expected, found), architecture=architecture, path=path, num_distinct=num_distinct
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
        return Result(architecture="", outcome="differs", max_diff=steps_diff, reason="other tokens")
    if steps_diff <= limit:
        return Result(architecture="", outcome="exact", max_diff=steps_diff)
    whole = _whole_passes(reference, expected)
    diff, own_diff = _max_diff(whole, found), _max_diff(whole, expected)
    if diff <= limit:
        reason = f"as a pass of transformers over the whole sequence; its own steps differ from that by {own_diff:.1e}"
        return Result(architecture="", outcome="exact", max_diff=diff, reason=reason)
    by_rounding = max(_max_diff(whole, _whole_passes(_rounded(reference, seed), expected)) for seed in range(6))
    if diff <= 2 * by_rounding:
        reason = f"logits of transformers change by {by_rounding:.1e} if its weights are rounded in another way"
        return Result(architecture="", outcome="exact", max_diff=diff, reason=reason)
    return Result(architecture="", outcome="differs", max_diff=steps_diff, reason="same tokens, other logits")


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


def _one_line(error: Exception) -> str:
    return f"{type(error).__name__}: {_plain(str(error))}"


def _plain(text: str) -> str:
    """One line, in which files of packages have no place on this machine."""
    return re.sub(r"\S*/site-packages/", "", " ".join(text.split()))


def measure_apart(architecture: str, seconds: float) -> Result:
    """Measure in a process of its own."""
    return apart.measure_apart(measure, architecture, seconds, functools.partial(_crash, architecture))


def _crash(architecture: str, reason: str) -> Result:
    return Result(architecture=architecture, outcome="crash", reason=reason)


def read_results(file: Path) -> dict[str, Result]:
    """Results by architecture; the last line of one counts."""
    lines = file.read_text().splitlines() if file.exists() else []
    return {result.architecture: result for result in (Result(**json.loads(line)) for line in lines)}


def page(results: Iterable[Result]) -> str:
    """The page of all results, as Markdown."""
    rows = sorted(results, key=lambda result: (list(OUTCOMES).index(result.outcome), result.architecture))
    counts = Counter(result.outcome for result in rows)
    lines = [
        "# Decoders that were compared with transformers",
        "",
        f"transformers {transformers.__version__} maps {len(rows)} model types to causal language models. A tiny "
        "random model of each (2 to 4 layers, hidden size 64, vocabulary of 128 tokens, float32) ran through "
        f"transformers and compiled, with `-O1` and `sequence_length=64`: {NUM_NEW_TOKENS} greedy tokens after prompts "
        f"of {' and '.join(map(str, PROMPT_LENGTHS))} tokens. This is about architectures: a published checkpoint may "
        "set options that its row does not cover, and every export compares the model itself with transformers.",
        "",
        "| Result | Architectures | Meaning |",
        "|---|---|---|",
        *(f"| {name} | {counts[name]} | {meaning} |" for name, meaning in OUTCOMES.items() if counts[name]),
        "",
        "`python -m tests.models.coverage` made this page. Difference is the largest one of all logits.",
        "",
        "| Architecture | Result | Path | Difference | Reason |",
        "|---|---|---|---|---|",
    ]
    for row in rows:
        difference = "" if row.max_diff is None else f"{row.max_diff:.1e}"
        reason = row.reason.replace("|", "\\|")
        reason = reason if len(reason) <= 240 else reason[:240] + "..."
        path = row.path if row.outcome in ("exact", "differs") else ""
        lines.append(f"| {row.architecture} | {row.outcome} | {path} | {difference} | {reason} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Measure, keep every result as a line of JSON, and write the page."""
    parser = argparse.ArgumentParser(prog="python -m tests.models.coverage", description=__doc__)
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help="model types to measure again; default: without result"
    )
    parser.add_argument("--results", type=Path, default=Path("build/decoders.jsonl"), help="lines of JSON: %(default)s")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="time limit of each: %(default)s")
    options = parser.parse_args()
    if unknown := sorted(set(options.names) - set(names())):
        parser.error(f"transformers has no causal language model named {', '.join(unknown)}")
    results = read_results(options.results)
    options.results.parent.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    with tqdm(options.names or [name for name in names() if name not in results], unit="model") as bar:
        for name in bar:
            bar.set_postfix_str(name)
            results[name] = result = measure_apart(name, options.seconds)
            with options.results.open("a") as file:
                file.write(json.dumps(dataclasses.asdict(result)) + "\n")
            if result.outcome != "exact":
                tqdm.write(f"{name}: {result.outcome}: {result.reason}")
    print(*(f"{name}: {count}" for name, count in Counter(result.outcome for result in results.values()).items()))
    missing = Result(architecture="", outcome="not measured")
    PAGE.write_text(page(results.get(name, dataclasses.replace(missing, architecture=name)) for name in names()))


if __name__ == "__main__":
    main()
