"""`optimum-cli neuron breakeven`: whether a port to an instance pays; see `optimum_neuron.simulator.breakeven`."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

from optimum.commands.base import CommandInfo

from .arguments import options_from
from .output import Out
from .parser import Command

_REQUIRED = {
    "engineer_days": ("N", "days of work for the port"),
    "day_rate": ("USD", "price of a day"),
    "gpu_price": ("USD", "price of an hour of the GPU machine in use today"),
}
_WORKLOADS = {
    "runs_per_month": ("N", "jobs a month, for example trainings"),
    "inferences_per_month": ("N", "requests a month"),
}
_SPEEDS = {
    "hours_per_run": ("H", "hours of a run on the instance (default: as on the GPU, or 1)"),
    "gpu_hours_per_run": ("H", "hours of a run on the GPU (default: as on the instance)"),
    "throughput": ("N", "inferences a second of the instance (default: as on the GPU, or all month is paid for)"),
    "gpu_throughput": ("N", "inferences a second of the GPU (default: as on the instance)"),
}


class BreakevenCommand(Command):
    COMMAND = CommandInfo(name="breakeven", help="Estimate when moving a workload to Neuron breaks even (simulated).")
    DESCRIPTION = """Estimate when moving a workload from a GPU to an instance breaks even (simulated).

  optimum-cli neuron breakeven --engineer-days 10 --day-rate 800 --runs-per-month 200 --gpu-price 4.1 --instance trn1
"""

    @classmethod
    def add_arguments(cls, parser: argparse.ArgumentParser) -> None:
        for name, (metavar, meaning) in _REQUIRED.items():
            parser.add_argument(_flag(name), type=float, required=True, metavar=metavar, help=meaning)
        workload = parser.add_mutually_exclusive_group(required=True)
        for name, (metavar, meaning) in _WORKLOADS.items():
            workload.add_argument(_flag(name), type=float, metavar=metavar, help=meaning)
        parser.add_argument("--instance", metavar="NAME", help="instance or family to move to")
        parser.add_argument(
            "--price", type=float, metavar="USD", help="price of an hour of the instance (default: on demand)"
        )
        for name, (metavar, meaning) in _SPEEDS.items():
            target = f"{name}_per_s" if name.endswith("throughput") else name
            parser.add_argument(_flag(name), dest=target, type=float, metavar=metavar, help=meaning)

    def execute(self, out: Out) -> None:
        from ..simulator import breakeven

        result = breakeven(**options_from(self.args))
        brief = "never (simulated)" if result.months is None else f"{result.months:.1f} months (simulated)"
        out.result(result.to_dict(), human=show_breakeven, brief=brief)


def show_breakeven(out: Out, data: Mapping[str, Any]) -> None:
    out.text(f"break-even of {data['instance']['value']} against a GPU: simulated")
    out.text()
    out.text(data["verdict"])
    out.text()
    units = data["units"]
    inputs = {
        "engineer days": f"{data['engineer_days']:,.12g}",
        "day rate": _usd(data["day_rate"]),
        f"{units} per month": f"{data['units_per_month']:,.12g}",
        "instance": f"{data['instance']['value']} ({data['instance']['reason']})",
        "price of the instance": data["price_source"],
        "price of the GPU": f"{_usd(data['gpu_price_usd_per_h'])} an hour",
        "hours per month, instance": f"{data['hours_per_month']:,.4g}",
        "hours per month, GPU": f"{data['gpu_hours_per_month']:,.4g}",
    }
    out.table([{"input": name, "value": value} for name, value in inputs.items()])
    out.text()
    never = data["months"] is None
    results = (
        ("port", "engineer days x day rate", _usd(data["port_usd"])),
        ("GPU, a month", "hours x price of the GPU", _usd(data["gpu_usd_per_month"])),
        ("instance, a month", "hours x price of the instance", _usd(data["usd_per_month"])),
        ("saving, a month", "GPU - instance", _usd(data["saving_usd_per_month"])),
        ("break-even, months", "port / saving", "never" if never else f"{data['months']:,.1f}"),
        (
            f"break-even, {units}",
            f"months x {units} per month",
            "never" if never else f"{data['units_to_breakeven']:,.0f}",
        ),
        ("first year", "12 x saving - port", _usd(data["first_year_usd"])),
    )
    columns = ("result", "formula", "value")
    out.table([dict(zip(columns, row, strict=True)) for row in results])
    out.text()
    out.remarks(data)


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def _usd(amount: float) -> str:
    return f"{'-' if amount < 0 else ''}${abs(amount):,.2f}"
