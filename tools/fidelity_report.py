"""Write `docs/fidelity.md`, its details, and its rows: predicted against published values.

    python tools/fidelity_report.py

It fits again with each family, release and source left out, which takes some minutes.
"""

from __future__ import annotations

import csv
import datetime
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "fidelity"))

import nki_report
import numpy as np
from cases import Row, read_rows
from fit import PRIORS
from report import (
    Band,
    Score,
    Scored,
    bands,
    by_configuration,
    coverage,
    family_coverage,
    family_of,
    grouped,
    left_out_coverage,
    most_within,
    pair_order,
    pooled_interval,
    score,
    summary,
)
from structures import SHIPPED, STRUCTURES
from training import is_current, published_mfu, training_errors, training_mfu, training_rows

DOCS = Path(__file__).parents[1] / "docs"
FILE, DETAILS, ROWS = DOCS / "fidelity.md", DOCS / "fidelity-details.md", DOCS / "fidelity.csv"

NAMES = {
    "decoder.tpot_ms": ("decoders, time per output token", 0.06),
    "decoder.ttft_ms": ("decoders, time to first token", 0.12),
    "held-out.ttft_ms": ("rows held out, decoders, time to first token **", 0.12),
    "decoder.tokens_per_s": ("decoders, output tokens per second", 0.04),
    "decoder.usd_per_1m": ("decoders, dollars per million tokens", 0.04),
    "encoder.latency_ms": ("encoders, latency", 0.08),
    "encoder.throughput_per_s": ("encoders, throughput", 0.08),
    "cnn.latency_ms": ("convolutional networks, latency", 0.08),
    "cnn.throughput_per_s": ("convolutional networks, throughput", 0.08),
    "inf1.latency_ms": ("encoders on NeuronCore-v1, latency", None),
    "inf1.throughput_per_s": ("encoders on NeuronCore-v1, throughput", None),
    "inf1-cnn.latency_ms": ("ResNet-50 on NeuronCore-v1, latency *", None),
    "inf1-cnn.throughput_per_s": ("ResNet-50 on NeuronCore-v1, throughput *", None),
    "inf1-pipeline.latency_ms": ("NeuronCore Pipeline, latency *", None),
    "inf1-pipeline.throughput_per_s": ("NeuronCore Pipeline, throughput *", None),
    "vit.latency_ms": ("vision transformers, latency", None),
    "vit.throughput_per_s": ("vision transformers, throughput", None),
    "graph.latency_ms": ("CLIP and Perceiver, latency *", 0.20),
    "graph.throughput_per_s": ("CLIP and Perceiver, throughput *", 0.20),
    "diffusion.latency_ms": ("diffusion pipelines, latency of a picture *", 0.20),
    "diffusion.throughput_per_s": ("diffusion pipelines, pictures per second *", 0.20),
    "mixture.tpot_ms": ("mixtures of experts, time per output token *", 0.20),
    "mixture.ttft_ms": ("mixtures of experts, time to first token *", None),
    "mixture.decode_ms": ("mixtures of experts, profile of a decode step *", None),
    "mixture.prefill_ms": ("mixtures of experts, profile of a prefill *", None),
    "mixture.decode_mbu": ("mixtures of experts, memory utilization of decode *", None),
    "mixture.prefill_mfu": ("mixtures of experts, utilization of prefill *", None),
    "mixture.decode_hbm_bytes": ("mixtures of experts, HBM bytes read by a decode step", None),
    "hybrid.tpot_ms": ("hybrids with linear attention, time per output token *", None),
    "hybrid.ttft_ms": ("hybrids with linear attention, time to first token *", None),
    "served.ttft_ms": ("clients of a server, mean time to first token *", 0.30),
    "served.tpot_ms": ("clients of a server, mean time per output token *", None),
    "served.tokens_per_s": ("clients of a server, output tokens per second *", 0.10),
    "trn2.tpot_ms": ("Trainium2 decoders, time per output token", None),
    "trn2.ttft_ms": ("Trainium2 decoders, time to first token *", None),
    "profile.decode_ms": ("device profiles, decode step", None),
    "profile.prefill_ms": ("device profiles, prefill", None),
    "profile.decode_mbu": ("device profiles, memory utilization of decode", None),
    "profile.prefill_mfu": ("device profiles, utilization of prefill", None),
    "profile.decode_hbm_bytes": ("device profiles, HBM bytes read by a decode step", 0.005),
}
"""Classes in the order of the page, with their goal for the median error, where there is one."""

NESTED = ("blind_median", "blind_within")
MIN_ROWS = 3
"""Classes with fewer values are in the details only."""

PARTS: dict[str, Callable[[Row], str]] = {
    "family of the model": family_of,
    "release, else month": lambda row: row.sdk or row.date[:7],
    "source": lambda row: row.source,
    "stack and instance": lambda row: f"{row.stack} {row.instance}",
}
"""Groups that are left out together to validate predictions."""

INTRODUCTION = """# Fidelity of the estimates

How far the times of `optimum-cli neuron estimate` are from times that AWS and Hugging Face published. `python
tools/fidelity_report.py` wrote this page on {day}; its figures are computed and do not depend on the machine.
This project has no hardware and measured no published value.

In the columns **nested**, the constants were fitted without the family of the model, and the structure of the estimate
was chosen by the other families ([details](fidelity-details.md) has the structures). Its rows were known to us, so
expect larger errors on a model, stack, or load that is unlike them: in an outside check of November 2026 with values
that this project had never seen, 65 % of the times to first token were within 25 %. Rows of classes marked * are in no
fit, but their work was modelled with these rows in view. Rows marked ** are in no fit and chose no structure, but one
was rejected partly because of them; the layout of attention (BSH), which explains some, was found in the samples that
their page links to.

"Holds" is the share of values inside the interval: each against that of all others, and each family against that of the
other families. An 80 % interval should hold 75 to 90 %. Intervals are conformal quantiles of errors, the usual choice;
it was made when the coverage of several others was known. If each family weighs the same, whatever number of values it
has, steps and tokens per second of decoders hold 62 to 69 % of a new family ([details](fidelity-details.md#intervals)).

"""

TRUST = """
Ranking holds better than values: of pairs of configurations whose published values differ by more than 10 %, {order}
are in the right order. Use estimates to compare instances, core counts, and options; add the interval to a value
before you plan with it.

## Out of reach

- **Servers under load.** HTTP and detokenization are not counted; queueing only for a given rate of requests or number
  of clients. Benchmarks with few requests for each client (`--num_requests`) have longer first tokens than a long load.
  TGI past its batch, and sampling on the host, took twice the predicted time.
- **Graphs that compile poorly.** Vision-language models, perceivers, and diffusion transformers took up to 2.5 times
  the predicted time.
- **Prefill.** Releases before SDK 2.19 took 1.0 to 2.8 times as long for large prompts, and one configuration varied by
  a factor of 2 between days.
- **Hybrids with linear attention.** Steps take 1.6 to 2.1 ms longer than predicted.
- **Releases of the SDK** move the same configuration by 9 to 24 %; an estimate knows no release.
- **Trainium3.** There are no published values to compare with.

More: [details](fidelity-details.md) has the fit, the constants, all limits, training, and kernels;
[fidelity.csv](fidelity.csv) has every row with its prediction and source.
"""

DETAILS_INTRODUCTION = """# Fidelity: details

[Fidelity](fidelity.md) has the summary. `python tools/fidelity_report.py` writes this page too. The published values
are in `tools/fidelity/published.csv`, each with its source; the constants in
`optimum_neuron/simulator/data/constants.json`, written by `python tools/fit_simulator.py`.

No constant is specific to a model. Not cross-validated: structural choices with a documented reason, and the expected
values of undocumented constants. Answers are timed by the cache bucket of each token; that choice was made with the
published tokens per second in view, but follows from the buckets that serving stacks document.

"""

NOT_FITTED = """
The ten constants up to `flash_factor` belong to a core generation, NeuronCore-v2. Later generations use the same
values, except for the time of each chip in an all-reduce; NeuronCore-v1 has two more constants, fitted last, on
the encoders of Inf1, which change no other constant. The other constants belong to hosts and serving stacks. Some
constants are not fitted, but in the code with a source: the latency of a KV cache read, 2 x 1.3 us (documented); the
slowdown of `-O1` for prefill, 1.5 times (documented), in graphs of more than 2.5e8 cycles (from these rows: 1.5e8 to
3.5e8 would fit); and a share of 0.2 of results that do not fit SBUF (a judgment that no row here depends on).
"""

ALIKE = """Few families have most values, and a new model is a new family. With each family weighing the same, in the
interval (pooled distribution functions: Dunn, Wasserman and Ramdas 2022) and in the share, these intervals hold a new
family in 75 to 90 % wherever four or more families are published. They are not used, because families with one or two
values decide them: by values they hold too many or too few. An outside check of November 2026 found 97 % of times per
output token within 25 %, so that the interval here would hold nearly all. With the guarantee for few families (Lee,
Barber and Willett 2023), most are wider still.

"""

LIMITS = Path(__file__).parent / "fidelity" / "limits.md"
"""What is hard to predict, and why, in prose."""


def main() -> int:
    """Fit, predict, write."""
    rows = read_rows()
    found = score(rows)
    scored, values = found.scored, found.values
    groups = grouped(scored)
    pairs, order = _pairs(groups)
    page = INTRODUCTION.format(day=datetime.datetime.now(datetime.UTC).date())
    page += _trust(groups, bands(scored)) + TRUST.format(order=order)
    FILE.write_text(page, encoding="utf-8")
    text = DETAILS_INTRODUCTION
    text += "## Errors by class\n\n" + _classes(groups)
    text += "\n" + _structures(found)
    text += "\n" + _left_out(rows, scored)
    text += "\n" + pairs
    text += "\n## Intervals\n\n" + _intervals(scored)
    text += "\n" + _alike(groups)
    text += "\n## Constants\n\n" + _constants(values)
    text += "\n" + LIMITS.read_text(encoding="utf-8").replace("{twins}", _twins(groups["decoder.ttft_ms"]))
    text += "\n## Training\n\n" + _training(rows)
    text += f"\n{nki_report.START}\n{nki_report.section()}"
    DETAILS.write_text(text, encoding="utf-8")
    _write_rows(groups)
    return 0


def _trust(groups: dict[str, list[Scored]], intervals: dict[str, Band]) -> str:
    """The table of the page: classes with enough rows to speak of."""
    lines = []
    for name, (title, _) in NAMES.items():
        group, found, band = groups[name], summary(groups[name]), intervals.get(name.replace("held-out", "decoder"))
        if band is None or len(group) < MIN_ROWS:
            continue
        is_held_out = name.startswith("held-out")
        held = [left_out_coverage(group), family_coverage(group)]
        held = [coverage(group, band.low, band.high)] * 2 if is_held_out else held
        lines.append([title, str(len(group)), *(_percent(found[key]) for key in ("median", *NESTED))])
        lines[-1] += [f"{band.low:.2f} to {band.high:.2f}"]
        lines[-1] += ["by judgment" if share is None else _percent(share) for share in held]
    header = ("class", "values", "median error, fitted", "nested", "within 25 %, nested", "80 % interval, factors")
    return _table((*header, "holds", "holds a new family"), lines)


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
    header = ("class", "rows", "median error, fitted", "cross-validated", "within 25 %", "bias", "goal")
    return _table(header, lines)


def _structures(found: Score) -> str:
    lines = [
        [name, ", ".join(sorted(part for part, chosen in found.chosen.items() if chosen == name)) or "none"]
        for name in STRUCTURES
    ]
    return "The structure that explains all other families best:\n\n" + _table(("structure", "families"), lines)


def _left_out(rows: list[Row], scored: list[Scored]) -> str:
    names = ("decoder.tpot_ms", "decoder.ttft_ms", "encoder.latency_ms", "profile.decode_ms", "profile.prefill_ms")
    lines = []
    for what, part_of in PARTS.items():
        told = scored if part_of is family_of else score(rows, part_of, [SHIPPED]).scored
        groups = grouped(told)
        lines.append([what, *(_percent(summary(groups[name])["blind_median"]) for name in names)])
    return (
        "Cross-validated median errors by what is left out together, the last three with the shipped structure:\n\n"
        + _table(("left out", *(NAMES[name][0] for name in names)), lines)
    )


def _pairs(groups: dict[str, list[Scored]]) -> tuple[str, str]:
    """Return the paragraph with its table, and the share of all pairs of configurations in order."""
    asked = {NAMES[name][0]: groups[name] for name in NAMES if name.startswith("decoder.")}
    single = [row for name in ("encoder", "cnn", "vit") for row in groups[f"{name}.throughput_per_s"]]
    asked["models of one forward, throughput"] = single
    lines = []
    sums = [0, 0, 0, 0]
    for title, group in asked.items():
        rows = pair_order((s.case.row.value, s.blind) for s in group)
        configurations = pair_order(by_configuration(group))
        lines.append([title, *_orders((*rows, *configurations))])
        sums = [total + more for total, more in zip(sums, (*rows, *configurations), strict=True)]
    lines.append(["all", *_orders(sums)])
    text = (
        "Pairs whose published values differ by more than 10 %, and how many of them cross-validation puts in the\n"
        "right order. Among rows there are pairs of one configuration at two releases, which no estimate can order;\n"
        "among configurations each counts once, with the median of its rows. The goal is 98 % of all pairs of\n"
        "configurations.\n\n"
        + _table(("class", "pairs of rows", "in order", "pairs of configurations", "in order"), lines)
    )
    return text, lines[-1][-1]


def _orders(counts: Iterable[int]) -> list[str]:
    alike, total, alike_configurations, total_configurations = counts
    share, share_configurations = alike / total, alike_configurations / total_configurations
    return [str(total), _percent(share), str(total_configurations), _percent(share_configurations)]


def _intervals(scored: list[Scored]) -> str:
    groups = grouped(scored)
    lines = []
    for name, band in bands(scored).items():
        held = [coverage(groups[name], band.low, band.high), left_out_coverage(groups[name])]
        held.append(family_coverage(groups[name]))
        ends = [f"{band.low:.3f}", f"{band.high:.3f}"]
        lines.append([name, *ends, *("" if share is None else _percent(share) for share in held), band.basis])
    return (
        "An interval is the value times 1 / e to e, where log e is the k-th smallest of the n absolute logarithms of\n"
        "published over left-out values, k = 0.8 (n + 1) rounded up: split conformal prediction (Vovk, Gammerman and\n"
        'Shafer 2005; Lei et al. 2018). Coverage is the share of published values inside; "left out" is that of each\n'
        'value by the interval of all others, "of a new family" that of each family by the interval of all others.\n'
        "An 80 % interval should cover 75 to 90 %. With fewer than four values, or one family, it is a judgment.\n\n"
        + _table(("class", "low", "high", "coverage", "left out", "of a new family", "basis"), lines)
    )


def _alike(groups: dict[str, list[Scored]]) -> str:
    """Intervals in which each family weighs the same, which are not used."""
    lines = []
    for name, group in groups.items():
        if name.startswith("held-out") or (usual := family_coverage(group, alike=True)) is None:
            continue
        low, high = pooled_interval(group)
        held = [left_out_coverage(group, pooled_interval), family_coverage(group, pooled_interval)]
        held += [family_coverage(group, pooled_interval, alike=True), usual]
        families = len({s.case.row.family for s in group})
        ends = [f"{low:.3f}", f"{high:.3f}"]
        lines.append([name, str(families), *ends, *("" if share is None else _percent(share) for share in held)])
    header = ("class", "families", "low", "high", "left out", "of a new family", "new family, families alike")
    return ALIKE + _table((*header, "interval in use, families alike"), lines)


def _twins(group: list[Scored]) -> str:
    """Say how many values an estimate that knows no release and no day could predict at best."""
    best = _percent(most_within(group) / len(group))
    return f"one value for each configuration could have {best} of them within 25 %, so days limit the share little."


def _constants(values: dict[str, float]) -> str:
    lines = [[name, f"{PRIORS[name].value:.4g}", f"{values[name]:.4g}", PRIORS[name].why] for name in values]
    table = _table(("constant", "expected before", "fitted", "where the expectation is from"), lines)
    return table + NOT_FITTED


def _training(rows: list) -> str:
    usual = training_mfu(rows)
    current = [row for row in training_rows(rows) if is_current(row)]
    lines = [
        [row.model, row.layout, str(row.nodes), row.sdk, f"{row.value:.4g}", f"{row.value * usual / mfu:.4g}"]
        + [_percent(mfu), _percent(usual / mfu - 1, "+")]
        for row in training_rows(rows)
        for mfu in [published_mfu(row)]
    ]
    header = ("model", "layout", "instances", "SDK", "published, sequences/s", "predicted", "published MFU", "error")
    error = _percent(float(np.median(np.abs(training_errors(rows)))))
    told = f"Median error without the family of a row, of the {len(current)} values since SDK 2.18: {error}"
    return f"{_table(header, lines)}\n{told}; the goal is 7.0 %.\n"


def _write_rows(groups: dict[str, list[Scored]]) -> None:
    names = ("model", "instance", "cores", "stack", "sdk", "date", "batch", "sequence_length", "input_length")
    names = (*names, "output_length", "image_size", "value", "unit", "source")
    with ROWS.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("class", *names, "predicted", "error_percent", "cross_validated_error_percent"))
        for name in NAMES:
            for s in groups[name]:
                facts = [getattr(s.case.row, key) for key in names]
                errors = [f"{100 * error:.1f}" for error in (s.error, s.blind_error)]
                writer.writerow((name, *facts, f"{s.predicted:.4g}", *errors))


if __name__ == "__main__":
    sys.exit(main())
