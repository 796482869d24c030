"""`optimum-cli neuron estimate MODEL`: time, memory and money on an instance, simulated.

The work is `optimum_neuron.simulator.estimate` and `compare`.
"""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Mapping
from typing import Any

from optimum.commands.base import CommandInfo

from ..base.wording import counted, number, time_span
from ..pages import QUANTITIES, priced, shown, titles_of
from .arguments import add_decoder_arguments, add_option_arguments, add_size_arguments, options_from
from .output import Out, cell, choice_rows, show_memory
from .pages import add_html, output_files, show_files, write_page
from .parser import Command

NOT_OF_GRAPHS = ("torch_dtype", "auto_cast_type", "instance_type", "pipeline_parallel_size", "speculation")
"""Options of an export that have another name in an estimate, or that it has no graphs for."""
_CHOICES = {name: name for name in ("instance", "num_cores", "num_copies", "counts")}


class EstimateCommand(Command):
    COMMAND = CommandInfo(name="estimate", help="Estimate time, memory and cost on an instance (simulated).")
    DESCRIPTION = """Estimate time, memory and cost of a model on an instance. Simulated: no weights, no hardware.

  optimum-cli neuron estimate MODEL --instance inf2.48xlarge --tensor_parallel_size 8 --batch_size 4
  optimum-cli neuron estimate MODEL --compare --optimize cost
"""

    @classmethod
    def add_arguments(cls, parser: argparse.ArgumentParser) -> None:
        from ..simulator import KEYWORDS, EstimateRequest

        parser.add_argument(
            "model",
            metavar="MODEL_OR_DIR",
            help="folder, id on the Hub, pipeline of diffusers, exported folder or NEFF file",
        )
        add_option_arguments(parser, EstimateRequest)
        choice = parser.add_argument_group("choice")
        choice.add_argument("--compare", action="store_true", help="rank all instances and core counts that fit")
        choice.add_argument("--optimize", choices=("latency", "throughput", "cost"), help="pick the best and say why")
        add_html(choice)
        add_size_arguments(parser)
        add_decoder_arguments(parser, without=(*KEYWORDS, *NOT_OF_GRAPHS))

    def execute(self, out: Out) -> None:
        files = output_files(self.args)
        options = options_from(self.args, without=("model", "compare", "optimize", "html"))
        if self.args.compare or self.args.optimize:
            from ..simulator import compare

            ranking = compare(self.args.model, optimize=self.args.optimize or "cost", **options)
            from ..pages import comparison_page

            data = write_page(files, ranking.to_dict(), comparison_page)
            out.result(data, human=show_comparison, brief=ranking.best.value)
            return
        from ..simulator import estimate, estimate_grid

        result = estimate(self.args.model, **options)
        data = result.to_dict()
        if files:
            from ..pages import estimate_page

            data["grid"] = estimate_grid(self.args.model, result, **options)
            data = write_page(files, data, estimate_page)
        out.result(data, human=show_estimate, brief=_brief(data))
        out.hint(f"optimum-cli neuron estimate {shlex.quote(str(self.args.model))} --compare  # all instances, ranked")


def show_estimate(out: Out, data: Mapping[str, Any]) -> None:
    out.text(f"estimate of {data['model']} ({data['kind']}) on {data['instance']['value']}: simulated")
    out.text()
    show_quantities(out, data, titles_of(data))
    out.text()
    if data["throughput_by_axis"]:
        titles = {name: f"{name.removesuffix('_per_s')} per second" for name in data["throughput_by_axis"]}
        show_quantities(out, data["throughput_by_axis"], titles)
        out.text()
    if data["padding"] is not None:
        out.text(_padding(data["padding"]))
        out.text()
    out.table(choice_rows(data, _CHOICES, column="value"))
    out.text()
    show_memory(out, data["hbm_bytes"])
    out.text()
    engines = [
        {"graph": graph, **{engine: cell(time) for engine, time in parts.items()}}
        for graph, parts in data["parts_ms"].items()
    ]
    if data["load"] is not None:
        _show_load(out, data["load"])
    if data["clients"] is not None:
        _show_clients(out, data["clients"])
    out.table(engines, title="time of each engine in one run, ms, simulated")
    out.text()
    for graph, least in data["bounds_ms"].items():
        out.text(f"bound, not an estimate: {graph} takes at least {time_span(least / 1e3)} by documented peaks")
    out.remarks(data)
    show_files(out, data)


def _padding(padding: Mapping[str, Any]) -> str:
    """Say which compiled lengths a request runs in."""
    cached = f", {padding['cached_tokens']} of them in the prefix cache" if padding["cached_tokens"] else ""
    steps = f"; decode steps attend to {padding['decode_slots']} slots" if padding["decode_slots"] else ""
    return (
        f"prompt: {counted(padding['input_tokens'], 'token')}{cached}; the prefill computes "
        f"{padding['prefill_tokens']} ({padding['share']:.0%} padding){steps}"
    )


def show_quantities(out: Out, data: Mapping[str, Any], titles: Mapping[str, str]) -> None:
    """Render quantities with their intervals; missing ones and None are left out."""
    rows = [
        {
            "quantity": title,
            "value": shown(name, quantity["value"]),
            "80 % interval": f"{shown(name, quantity['low'])} to {shown(name, quantity['high'])}",
            "limited by": quantity.get("limited_by"),
        }
        for name, title in titles.items()
        if (quantity := data.get(name)) is not None
    ]
    out.table(rows)


def _show_load(out: Out, load: Mapping[str, Any]) -> None:
    from ..simulator import SERVED

    titles = {"utilization": "utilization", "wait_mean_ms": "mean wait", "wait_p95_ms": "95th percentile of the wait"}
    rows = [
        {"quantity": title, **{end: _bounded(name, load[name][end]) for end in ("value", "low", "high")}}
        for name, title in {**titles, **SERVED}.items()
        if load[name] is not None
    ]
    arriving = "1 request arrives" if load["requests_per_s"] == 1 else f"{load['requests_per_s']:g} requests arrive"
    out.table(rows, title=f"{arriving} each second, simulated")
    price = "" if load["usd_per_h"] is None else f", ${number(load['usd_per_h'])} an hour"
    copies, instances = counted(load["num_copies"], "copy", "copies"), counted(load["num_instances"], "instance")
    out.text(f"to keep up: {copies} on {instances}{price}")
    out.text(f"assumed: {load['note']}")
    out.text()


def _show_clients(out: Out, clients: Mapping[str, Any]) -> None:
    from ..simulator import SERVED

    names = ("requests_per_s", "tokens_per_s", "usd_per_1m")
    titles = {"requests_per_s": "requests per second", **QUANTITIES, "usd_per_1m": "price per million tokens"}
    out.text(f"seen by {counted(clients['num_clients'], 'client')}, each with one request at a time, simulated")
    show_quantities(out, clients, {name: titles[name] for name in names} | SERVED)
    out.text(f"assumed: {clients['note']}")
    out.text()


def _bounded(name: str, value: float | None) -> str:
    return "no end" if value is None else shown(name, value)


def show_comparison(out: Out, data: Mapping[str, Any]) -> None:
    machines = counted(len(data["ranked"]), "machine")
    out.text(f"{data['model']} on {machines}, by {data['goal']}: simulated")
    out.text()
    rows = [
        {
            "instance": one["instance"]["value"],
            "cores": one["num_cores"]["value"],
            "copies": one["num_copies"]["value"],
            "batch": one["batch_size"],
            "latency": _of(one, "latency_ms"),
            "requests/s": _of(one, "throughput_per_s"),
            "tokens/s": _of(one, "tokens_per_s"),
            f"per million {priced(one)}": _of(one, "usd_per_1m") or "no price",
            "HBM": _range(one, "hbm_bytes_per_core"),
            "memory": one["fit"],
            **_load_columns(one["load"]),
        }
        for one in data["ranked"]
    ]
    out.table(rows)
    out.text()
    best = data["best"]
    out.text(f"best: {best['value']} ({best['reason']})")
    for one in best["rejected"]:
        out.text(f"  not {one['candidate']}: {one['reason']}")
    for name, why in data["skipped"].items():
        out.text(f"skipped {name}: {why}")
    show_files(out, data)


def _load_columns(load: Mapping[str, Any] | None) -> dict[str, Any]:
    """Instances that keep up with the arriving requests, if a rate was given."""
    if load is None:
        return {}
    price = "no price" if load["usd_per_h"] is None else shown("usd_per_h", load["usd_per_h"])
    return {"instances": load["num_instances"], "per hour": price}


def _of(one: Mapping[str, Any], name: str) -> str:
    return "" if one[name] is None else shown(name, one[name]["value"])


def _range(one: Mapping[str, Any], name: str) -> str:
    """The interval of a quantity."""
    return f"{shown(name, one[name]['low'])} to {shown(name, one[name]['high'])}"


def _brief(data: Mapping[str, Any]) -> str:
    quantity = data["tpot_ms"] or data["latency_ms"]
    return f"{quantity['value']:.4g} ms (simulated)"
