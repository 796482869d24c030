"""`optimum-cli neuron serve --simulate TRACE`: a capacity plan in place of a server.

The work is `optimum_neuron.simulator.plan_capacity` and `sweep_capacity`.
"""

from __future__ import annotations

import argparse
import dataclasses
import shlex
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..base.wording import counted, number, time_span
from ..errors import ConfigError
from .arguments import nonnegative, options_from, positive_int
from .fleet import FLEET_OPTIONS
from .output import Out
from .pages import add_html, output_files, show_files, write_page

if TYPE_CHECKING:
    from ..simulator import Trace, Tried

CAPACITY_OPTIONS = (
    *("simulate", "sweep", "slo", "slo_attainment", "num_prompts", "input_length", "output_length"),
    *("request_rate", "seed", "price", "constants", "html"),
)
"""Arguments that only a capacity plan has."""
MOST_ROWS = 30
"""Rows of the table of a sweep; --json has all."""
_TRIED = ("configuration", "instances", "replicas", "per hour", "p99 ttft", "p99 tpot", "kept", "result")


def add_capacity_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of a capacity plan."""
    group = parser.add_argument_group("capacity plan (simulated)")
    group.add_argument(
        "--simulate",
        metavar="TRACE",
        help="replay requests against simulated time: a file of JSON lines or CSV, or poisson:RATE",
    )
    group.add_argument("--sweep", action="store_true", help="find the cheapest configuration that meets --slo")
    group.add_argument("--slo", metavar="LIMITS", help="limits of a request in ms, for example ttft=500,tpot=50")
    group.add_argument(
        "--slo_attainment",
        type=nonnegative,
        metavar="X",
        help="share of requests that must keep them (default: 0.99)",
    )
    group.add_argument(
        "--num_prompts",
        type=positive_int,
        metavar="N",
        help="requests: the first ones of a trace (default: all), or those of poisson (default: 1000)",
    )
    group.add_argument("--input_length", type=positive_int, metavar="N", help="prompt tokens of a request of poisson")
    group.add_argument("--output_length", type=positive_int, metavar="N", help="answer tokens of a request of poisson")
    group.add_argument(
        "--request_rate",
        type=nonnegative,
        metavar="X",
        help="random arrivals each second in place of those of the trace",
    )
    group.add_argument("--seed", type=positive_int, metavar="N", help="seed of random arrivals (default: 0)")
    add_html(group)
    group.add_argument(
        "--price", type=float, metavar="USD", help="price of one instance for an hour (default: on demand)"
    )
    group.add_argument(
        "--constants", metavar="FILE", help="constants that neuron calibrate wrote (default: those of this version)"
    )


def reject_capacity_options(args: argparse.Namespace) -> None:
    """Check that no option of a capacity plan is given without one."""
    if given := list(options_from(args, *CAPACITY_OPTIONS)):
        message = f"{', '.join(given)} has no effect without --simulate."
        raise ConfigError(message, hint="Add --simulate TRACE, or remove it.", options=given)


def run_capacity(args: argparse.Namespace, out: Out) -> int:
    """Print a plan or a sweep; return the exit code."""
    files = output_files(args)
    from ..serving import ServeOptions
    from ..simulator import parse_slo

    if given := list(options_from(args, *FLEET_OPTIONS)):
        message = f"{', '.join(given)} has no effect with --simulate, which serves nothing."
        raise ConfigError(message, hint="Remove it, or pass --num_replicas.", options=given)
    options = options_from(args, without=("models", *CAPACITY_OPTIONS, *FLEET_OPTIONS))
    ignored = {field.name for field in dataclasses.fields(ServeOptions)} & options.keys() - {"max_queue_size"}
    if ignored or len(args.models) > 1:
        what = f"{', '.join(sorted(ignored))} has no effect on" if ignored else "several models cannot be served in"
        message = f"{what} a capacity plan."
        raise ConfigError(message[0].upper() + message[1:], hint="Remove it.", options=sorted(ignored))
    (model,) = args.models
    options.setdefault("max_queue_size", ServeOptions().max_queue_size)
    for ours, name in {"instance_type": "instance", "torch_dtype": "dtype"}.items():
        if ours in options:
            options[name] = options.pop(ours)
    attainment = {} if args.slo_attainment is None else {"attainment": args.slo_attainment}
    slo = None if args.slo is None else parse_slo(args.slo, **attainment)
    if slo is None and (args.sweep or attainment):
        raise ConfigError("There is no objective.", hint="Pass --slo ttft=500,tpot=50.", option="slo", value=None)
    trace = _trace(args, model)
    options |= options_from(args, "price", "constants")
    return (_sweep if args.sweep else _plan)(out, model, trace, slo, options, files)


def _plan(out: Out, model: str, trace: Trace, slo: Any, options: dict[str, Any], files: Mapping[str, Path]) -> int:
    from ..pages import plan_page
    from ..simulator import plan_capacity

    data = write_page(files, plan_capacity(model, trace, slo=slo, **options).to_dict(), plan_page)
    out.result(data, human=show_plan, brief=_brief(data))
    if slo is None:
        out.hint(f"optimum-cli neuron serve {shlex.quote(model)} --simulate ... --slo ttft=500,tpot=50 --sweep")
    else:
        out.hint(_command(model, data))
    return 0


def _sweep(out: Out, model: str, trace: Trace, slo: Any, options: dict[str, Any], files: Mapping[str, Path]) -> int:
    from ..pages import sweep_page
    from ..simulator import sweep_capacity

    if "num_replicas" in options:
        message = "num_replicas has no effect on a sweep, which finds it."
        raise ConfigError(message, hint="Remove it, or remove --sweep.", option="num_replicas")
    with _progress(out) as on_tried:
        data = sweep_capacity(model, trace, slo=slo, on_tried=on_tried, **options).to_dict()
    data = write_page(files, data, sweep_page)
    best = data["best"]
    out.result(data, human=show_sweep, brief="none" if best is None else str(data["choice"]["value"]))
    if best is None:
        out.hint(f"optimum-cli neuron serve {shlex.quote(model)} --simulate ... --slo ...  # larger limits")
        return 1
    out.hint(_command(model, best))
    return 0


class _progress:
    """A line on stderr with the number of configurations and the best so far."""

    def __init__(self, out: Out) -> None:
        self._out = out

    def __enter__(self) -> Callable[[Tried], None]:
        from tqdm import tqdm

        self._bar = tqdm(desc="Configurations", unit="", file=self._out.stderr, leave=False)
        self._best: float | None = None
        return self._note

    def _note(self, one: Tried) -> None:
        if one.usd_per_h is not None and (self._best is None or one.usd_per_h < self._best):
            self._best = one.usd_per_h
            self._bar.set_postfix_str(f"best so far ${number(one.usd_per_h)} an hour: {one.label}")
        self._bar.update()

    def __exit__(self, *error: object) -> None:
        self._bar.close()


def _trace(args: argparse.Namespace, model: str) -> Trace:
    from ..simulator import poisson_trace, read_trace

    seed = args.seed or 0
    lengths = {"input_length": args.input_length, "output_length": args.output_length}
    kind, _, rate = args.simulate.partition(":")
    if kind == "poisson":
        if missing := [name for name, value in lengths.items() if value is None]:
            message = f"{', '.join(missing)} is missing for {args.simulate}."
            raise ConfigError(message, hint="Pass --input_length and --output_length.", options=missing)
        try:
            per_s = float(rate)
        except ValueError:
            message = f"{args.simulate!r} has no rate."
            hint = "Pass for example poisson:2.5."
            raise ConfigError(message, hint=hint, option="simulate", value=args.simulate) from None
        return poisson_trace(
            args.request_rate or per_s,
            num_requests=args.num_prompts or 1000,
            num_prompt=args.input_length,
            num_answer=args.output_length,
            seed=seed,
        )
    if given := [name for name, value in lengths.items() if value is not None]:
        message = f"{', '.join(given)} has no effect: the trace has the lengths of its requests."
        raise ConfigError(message, hint="Remove it, or pass poisson:RATE.", options=given)
    trace = read_trace(args.simulate, count_tokens=_Counter(model)).first(args.num_prompts)
    return trace if args.request_rate is None else trace.at_rate(args.request_rate, seed=seed)


class _Counter:
    """Counts the tokens of texts with the tokenizer of a model, which is loaded for the first text."""

    def __init__(self, model: str) -> None:
        self._model = model
        self._tokenizer: Any = None

    def __call__(self, text: str) -> int:
        if self._tokenizer is None:
            from ..modeling import load_preprocessor
            from ..sources import find_folder

            self._tokenizer = load_preprocessor("AutoTokenizer", find_folder(self._model, with_weights=False))
        return len(self._tokenizer(text)["input_ids"])


def _command(model: str, data: Mapping[str, Any]) -> str:
    """Return the command that serves a configuration."""
    words = ["optimum-cli neuron serve", shlex.quote(model), f"--instance_type {data['instance']['value']}"]
    words += [f"--{name} {value}" for name, value in data["configuration"].items()]
    num_replicas = data["num_replicas"]["value"]
    return " ".join(words + [f"--ray --num_replicas {num_replicas}"] * (num_replicas > 1))


def _brief(data: Mapping[str, Any]) -> str:
    if data["slo"] is not None:
        return f"{100 * data['slo_attainment']:.4g} % (simulated)"
    return f"{number(data['output_throughput'])} tokens/s (simulated)"


def show_plan(out: Out, data: Mapping[str, Any]) -> None:
    """Render a plan."""
    from ..simulator import TIMES

    trace, replicas = data["trace"], data["num_replicas"]
    out.text(f"{data['model']} on {data['instance']['value']} ({data['target']}): simulated")
    every = "" if trace["requests_per_s"] is None else f", {number(trace['requests_per_s'], digits=3)} requests/s"
    means = f"{trace['mean_input_tokens']:.0f} + {trace['mean_output_tokens']:.0f} tokens on average"
    out.text(f"{trace['source']}: {counted(trace['num_requests'], 'request')}, {means}{every}")
    price = "" if data["usd_per_h"] is None else f", ${number(data['usd_per_h'])} an hour"
    instances = counted(data["num_instances"], "instance")
    out.text(f"{counted(replicas['value'], 'replica')} on {instances}{price} ({replicas['reason']})")
    out.text(", ".join(f"{name} {value}" for name, value in data["configuration"].items()))
    out.text()
    rows = [
        {"time": title, **{part: _time(data[f"{part}_{name}_ms"]) for part in ("mean", "median", "p90", "p99")}}
        | {"p99, 80 % interval": _span(data, f"p99_{name}_ms", _time)}
        for name, title in TIMES.items()
        if data[f"mean_{name}_ms"] is not None
    ]
    out.table(rows)
    out.text()
    out.table(_totals(data))
    out.text()
    speed = data["duration"] / data["host_s"] if data["host_s"] else 0.0
    shown = f"{time_span(data['duration'])} of simulated time in {time_span(data['host_s'])}"
    out.text(f"{shown}: {number(speed, digits=3)} times real time")
    out.remarks(data)
    show_files(out, data)


def _totals(data: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the rows of numbers that are no times; rejected requests only if there are some."""

    def share(value: float) -> str:
        return f"{100 * value:.2f} %"

    shown: dict[str, tuple[str, Callable[[float], str]]] = {
        "request_throughput": ("requests per second", number),
        "output_throughput": ("output tokens per second", number),
        "total_token_throughput": ("all tokens per second", number),
        "busy_share": ("time that replicas are busy", share),
    }
    if data["slo"] is not None:
        shown["request_goodput"] = ("goodput, requests per second", number)
        shown["slo_attainment"] = ("requests that keep the limits", share)
    for name in ("output_tokens", "tokens"):
        shown[f"usd_per_1m_{name}"] = (f"price per million {name.replace('_', ' ')}", lambda usd: f"${number(usd)}")
    rows: list[dict[str, Any]] = [{"quantity": "requests answered", "value": f"{data['completed']:,}"}]
    rows += [
        {"quantity": f"rejected: {reason.replace('_', ' ')}", "value": f"{count:,}"}
        for reason, count in data["rejected"].items()
        if count
    ]
    rows += [
        {
            "quantity": title,
            "value": "no price" if data[name] is None else text(data[name]),
            "80 % interval": _span(data, name, text),
        }
        for name, (title, text) in shown.items()
    ]
    if data["slo"] is not None:
        rows.append({"quantity": "meets the objective", "value": "yes" if data["meets_slo"] else "no"})
    return rows


def _time(value_ms: float) -> str:
    return time_span(value_ms / 1e3)


def _span(data: Mapping[str, Any], name: str, shown: Callable[[float], str]) -> str:
    low, high = data["interval"].get(name, (None, None))
    return "" if low is None else f"{shown(low)} to {shown(high)}"


def show_sweep(out: Out, data: Mapping[str, Any]) -> None:
    """Render what was tried, and the best."""
    tried = data["tried"]
    trace = data["trace"]
    out.text(f"{data['model']}, {counted(trace['num_requests'], 'request')} of {trace['source']}: simulated")
    out.text()
    rows = [
        {
            "configuration": _label(one),
            "instances": one["num_instances"],
            "replicas": one["num_replicas"],
            "per hour": None if one["usd_per_h"] is None else f"${number(one['usd_per_h'])}",
            "p99 ttft": _known(one, "p99_ttft_ms"),
            "p99 tpot": _known(one, "p99_tpot_ms"),
            "kept": f"{100 * one['numbers']['slo_attainment']:.1f} %" if one["numbers"] else None,
            "result": one["reason"] if position or not one["meets_slo"] else "best",
        }
        for position, one in enumerate(tried)
    ]
    out.table(rows[:MOST_ROWS], _TRIED)
    if len(rows) > MOST_ROWS:
        out.text(f"and {len(rows) - MOST_ROWS} more, see --json")
    out.text()
    choice = data["choice"]
    out.text(f"best: {choice['value'] or 'none'} ({choice['reason']})")
    for name, why in data["skipped"].items():
        out.text(f"skipped {name}: {why}")
    if data["best"] is not None:
        out.text()
        show_plan(out, data["best"])
    show_files(out, data)


def _label(one: Mapping[str, Any]) -> str:
    cores = f"{one['instance']}, {counted(one['num_cores'], 'core')}"
    if one["batch_size"] is None:
        return cores
    return f"{cores}, batch {one['batch_size']}, chunks {one['prefill_chunk_size']}"


def _known(one: Mapping[str, Any], name: str) -> str | None:
    value = one["numbers"].get(name)
    return None if value is None else _time(value)
