"""Write `docs/fidelity.md`: predicted against published, for every row that the constants were fitted on.

    python tools/fidelity_report.py

It fits again with each family left out, which takes about a minute.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "fidelity"))

import numpy as np
from cases import cases, read_rows
from fit import PRIORS
from report import Scored, bands, grouped, pair_order, score, summary
from training import published_mfu, training_mfu, training_rows

FILE = Path(__file__).parents[1] / "docs/fidelity.md"

NAMES = {
    "decoder.tpot_ms": ("decoders, time per output token", 0.09),
    "decoder.ttft_ms": ("decoders, time to first token", 0.15),
    "decoder.tokens_per_s": ("decoders, output tokens per second", 0.06),
    "decoder.usd_per_1m": ("decoders, dollars per million tokens", 0.06),
    "encoder.latency_ms": ("encoders, latency", 0.09),
    "encoder.throughput_per_s": ("encoders, throughput", 0.09),
    "cnn.latency_ms": ("convolutional networks, latency", None),
    "cnn.throughput_per_s": ("convolutional networks, throughput", None),
    "vit.latency_ms": ("vision transformers, latency", None),
    "vit.throughput_per_s": ("vision transformers, throughput", None),
    "mixture.tpot_ms": ("mixture of experts, time per output token (left out of the fit)", None),
    "trn2.tpot_ms": ("Trainium2 decoders, time per output token", None),
    "trn2.ttft_ms": ("Trainium2 decoders, time to first token (left out of the fit)", None),
    "profile.decode_ms": ("device profiles, decode step", None),
    "profile.prefill_ms": ("device profiles, prefill", None),
    "profile.decode_mbu": ("device profiles, memory utilization of decode", None),
    "profile.prefill_mfu": ("device profiles, utilization of prefill", None),
    "profile.decode_hbm_bytes": ("device profiles, HBM bytes read by a decode step", 0.005),
}
"""Classes in the order of the page, with their goal for the median error, where there is one."""

INTRODUCTION = """# Fidelity of the simulator

What `optimum-cli neuron estimate` says, against what AWS and Hugging Face published. Written by
`python tools/fidelity_report.py`; the published values are in `tools/fidelity/published.csv`, each with its source, and
the constants in `optimum_neuron/simulator/data/constants.json`, written by `python tools/fit_simulator.py`.

Nothing here was measured by this project: it has no hardware. "Blind" means that the whole family of the model was left
out, the constants fitted again on the others, and the model predicted with those. No constant belongs to a model. The
*structure* of the model, and the expected values of constants that no document gives, were chosen with these rows in
view, so other families may be predicted worse than this page says. With those expectations doubled or halved at random
and twice as wide, blind median errors were 5 to 6 % (time per token), 17 to 21 % (time to first token), 10 to 15 %
(encoders). The same configuration differs by 9 to 24 % between releases of the SDK.

"""

LIMITS = """## What is not predictable, and why

- **Graphs that the compiler handles badly.** What is counted is what a graph needs, not what a compiler makes of it.
  Models of images and texts, perceivers and diffusion transformers are published to be up to 2.5 times slower than such
  sums. Those models get the class "graph", and an interval from 0.4 to 2.5 times the value.
- **Prompts of Transformers NeuronX.** Long prompts in batches took up to three times as long as one by one, for one
  model and not for another of nearly the same shape. It is the largest part of the error of the time to first token.
- **Mixtures of experts.** One model is published with enough detail. A step is counted as if each token loaded its own
  experts, which is what its times look like.
- **Trainium2 prompts over many chips.** One published value, off by a factor.
- **Trainium3.** Nothing is published that could be compared: documented rates with the factors of NeuronCore-v2.
- **Servers under load.** Queues, HTTP and detokenization are not in the estimate.
- **Diffusion pipelines.** Not estimated: their configurations are not transformers configurations.
- **Training.** A step is one share of the peak, the median of what is published. A model of operators did worse.
"""


def main() -> int:
    """Fit, predict, write."""
    rows = read_rows()
    values, scored = score(cases(rows))
    groups = grouped(scored)
    text = INTRODUCTION
    text += "## Errors by class\n\n" + _classes(groups)
    text += "\n" + _pairs(groups)
    text += "\n## Intervals\n\n" + _intervals(scored)
    text += "\n## Constants\n\n" + _constants(values)
    text += "\n" + LIMITS
    text += "\n## Training\n\n" + _training(rows)
    text += "\n## Every row\n\n" + _rows(groups)
    FILE.write_text(text)
    return 0


def _table(header: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    titles = list(header)
    lines = [titles, ["---"] * len(titles), *map(list, rows)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _percent(value: float, sign: str = "") -> str:
    return f"{100 * value:{sign}.1f} %"


def _classes(groups: dict[str, list[Scored]]) -> str:
    lines = []
    for name, (title, goal) in NAMES.items():
        found, rows = summary(groups[name]), groups[name]
        told = "" if goal is None else f"{_percent(goal)}, {'reached' if found['blind_median'] <= goal else 'missed'}"
        lines.append(
            [title, str(len(rows)), _percent(found["median"]), _percent(found["blind_median"])]
            + [_percent(found["blind_within"]), _percent(found["blind_bias"], "+"), told]
        )
    header = ("class", "rows", "median error, fitted", "blind", "blind within 25 %", "blind bias", "goal, blind")
    return _table(header, lines)


def _pairs(groups: dict[str, list[Scored]]) -> str:
    lines = []
    for name in ("decoder.tpot_ms", "decoder.ttft_ms", "decoder.tokens_per_s", "decoder.usd_per_1m"):
        share, total = pair_order(groups[name])
        lines.append([NAMES[name][0], str(total), _percent(share)])
    single = [*groups["encoder.throughput_per_s"], *groups["cnn.throughput_per_s"], *groups["vit.throughput_per_s"]]
    share, total = pair_order(single)
    lines.append(["models of one forward, throughput", str(total), _percent(share)])
    return (
        "Pairs of configurations whose published values differ by more than 10 %, and how many of them the blind\n"
        "predictions put in the right order:\n\n" + _table(("class", "pairs", "in order"), lines)
    )


def _intervals(scored: list[Scored]) -> str:
    found = bands(scored)
    groups = grouped(scored)
    lines = []
    for name, band in found.items():
        inside = [band.low <= s.case.row.value / s.blind <= band.high for s in groups[name]]
        lines.append([name, f"{band.low:.2f}", f"{band.high:.2f}", _percent(float(np.mean(inside))), band.basis])
    return (
        "An interval is the value times these factors. Coverage is the share of published values inside, around blind\n"
        "predictions.\n\n" + _table(("class", "low", "high", "coverage", "basis"), lines)
    )


def _constants(values: dict[str, float]) -> str:
    lines = [[name, f"{PRIORS[name].value:.4g}", f"{values[name]:.4g}", PRIORS[name].why] for name in values]
    return _table(("constant", "expected before", "fitted", "where the expectation is from"), lines)


def _training(rows: list) -> str:
    usual = training_mfu(rows)
    lines = [
        [row.model, row.layout, str(row.nodes), row.sdk, f"{row.value:.4g}", f"{row.value * usual / mfu:.4g}"]
        + [_percent(mfu), _percent(usual / mfu - 1, "+")]
        for row in training_rows(rows)
        for mfu in [published_mfu(row)]
    ]
    header = ("model", "layout", "instances", "SDK", "published, sequences/s", "predicted", "published MFU", "error")
    return _table(header, lines)


def _rows(groups: dict[str, list[Scored]]) -> str:
    parts = []
    for name, (title, _) in NAMES.items():
        lines = []
        for s in groups[name]:
            row = s.case.row
            where = f"{row.instance}, {row.cores} cores" if row.cores else row.instance
            lengths = f"{row.sequence_length}: {row.input_length} + {row.output_length}" if row.output_length else ""
            shape = f"{row.batch} x {lengths or row.sequence_length or row.image_size}"
            when = row.sdk or row.date
            lines.append(
                [row.model, where, f"{row.stack} {when}".strip(), shape, f"{row.value:.4g}", f"{s.predicted:.4g}"]
                + [_percent(s.error, "+"), _percent(s.blind_error, "+")]
            )
        header = ("model", "where", "stack, release", "batch x length", "published", "predicted", "error", "blind")
        parts.append(f"### {title[0].upper()}{title[1:]}\n\n" + _table(header, lines))
    return "\n".join(parts)


if __name__ == "__main__":
    sys.exit(main())
