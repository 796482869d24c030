"""`breakeven`: whether moving a workload from a GPU to the simulated instance pays, and when. Arithmetic, no model.

It knows prices and hours. The duration of a run, or the number of inferences per second, comes from the caller, for
example from `estimate`. Nothing is discounted, and upkeep after the port is taken to be the same on both sides.

    >>> from optimum_neuron.simulator import breakeven
    >>> port = breakeven(engineer_days=10, day_rate=800, runs_per_month=1000, gpu_price=5.0, instance="inf2.xlarge")
    >>> port.port_usd, round(port.saving_usd_per_month, 1), round(port.months, 2)
    (8000.0, 4241.8, 1.89)
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from ..base.core import Choice
from ..errors import ConfigError
from .machine import choose_machine

HOURS_PER_MONTH = 730.0
"""8,760 hours of a year over 12, as cloud bills count them."""
MONTHS_PER_YEAR = 12
_LARGEST = 1e15
"""Beyond this, a number is taken for a slip."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Breakeven:
    """Whether and when a port breaks even: every input, and the results. Simulated: nothing was measured."""

    instance: Choice[str]
    """Instance to move to, and why this one."""
    engineer_days: float
    """Days of work that the port takes."""
    day_rate: float
    """US dollars for one of them."""
    units: str
    """Unit of the workload: "runs" or "inferences"."""
    units_per_month: float
    price_usd_per_h: float
    price_source: str
    gpu_price_usd_per_h: float
    """Price of the GPU machine."""
    hours_per_month: float
    """Hours a month that the instance is paid for."""
    gpu_hours_per_month: float
    """Hours a month that the GPU machine is paid for."""
    assumptions: tuple[str, ...]
    simulated: bool = True

    @property
    def port_usd(self) -> float:
        """One-time cost of the port: `engineer_days * day_rate`."""
        return self.engineer_days * self.day_rate

    @property
    def usd_per_month(self) -> float:
        """Cost on the instance: `hours_per_month * price_usd_per_h`."""
        return self.hours_per_month * self.price_usd_per_h

    @property
    def gpu_usd_per_month(self) -> float:
        """Cost on the GPU machine: `gpu_hours_per_month * gpu_price_usd_per_h`."""
        return self.gpu_hours_per_month * self.gpu_price_usd_per_h

    @property
    def saving_usd_per_month(self) -> float:
        """`gpu_usd_per_month - usd_per_month`; negative where the GPU is cheaper."""
        return self.gpu_usd_per_month - self.usd_per_month

    @property
    def pays(self) -> bool:
        """Whether anything is saved, so that the port eventually breaks even."""
        return self.saving_usd_per_month > 0

    @property
    def months(self) -> float | None:
        """Months until the port breaks even: `port_usd / saving_usd_per_month`; None if it never does."""
        return self.port_usd / self.saving_usd_per_month if self.pays else None

    @property
    def units_to_breakeven(self) -> float | None:
        """Runs or inferences until then: `months * units_per_month`; None where it never pays."""
        return None if self.months is None else self.months * self.units_per_month

    @property
    def first_year_usd(self) -> float:
        """Net saving after a year: `12 * saving_usd_per_month - port_usd`; negative for a loss."""
        return MONTHS_PER_YEAR * self.saving_usd_per_month - self.port_usd

    @property
    def verdict(self) -> str:
        """The answer in a sentence."""
        if self.months is None:
            if self.saving_usd_per_month == 0:
                return "the port never pays: both cost the same"
            return f"the port never pays: the GPU is cheaper by ${-self.saving_usd_per_month:,.2f} a month"
        return (
            f"the port pays after {self.months:,.1f} months: it costs ${self.port_usd:,.2f} and saves "
            f"${self.saving_usd_per_month:,.2f} a month"
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain data, results after inputs."""
        results = ("port_usd", "usd_per_month", "gpu_usd_per_month", "saving_usd_per_month", "pays", "months")
        inputs = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return {
            **inputs,
            "instance": self.instance.to_dict(),
            "assumptions": list(self.assumptions),
            **{name: getattr(self, name) for name in (*results, "units_to_breakeven", "first_year_usd", "verdict")},
        }


def breakeven(
    *,
    engineer_days: float,
    day_rate: float,
    gpu_price: float,
    instance: str | None = None,
    runs_per_month: float | None = None,
    inferences_per_month: float | None = None,
    hours_per_run: float | None = None,
    gpu_hours_per_run: float | None = None,
    throughput_per_s: float | None = None,
    gpu_throughput_per_s: float | None = None,
    price: float | None = None,
) -> Breakeven:
    """Estimate when moving a workload from a GPU to the instance breaks even.

        port   = engineer_days * day_rate
        saving = gpu_hours * gpu_price - hours * price                               a month
        months = port / saving                                                       never, unless saving > 0

    `hours` and `gpu_hours` are the paid hours of a month: `runs_per_month * hours_per_run`, or `inferences_per_month /
    (3600 * throughput_per_s)`; all 730 of it for inferences without a throughput.

    Args:
        engineer_days: days of work for the port.
        day_rate: US dollars for a day.
        gpu_price: US dollars for an hour of the GPU machine in use today.
        instance: instance or family to move to; None for the environment's or the default.
        runs_per_month: jobs a month, for example trainings; either these or inferences.
        inferences_per_month: requests a month.
        hours_per_run: hours of a run on the instance; None: as on the GPU, or 1.
        gpu_hours_per_run: hours of a run on the GPU; None: as on the instance.
        throughput_per_s: inferences a second of the instance; None: as on the GPU, or one machine runs all month.
        gpu_throughput_per_s: inferences a second of the GPU; None: as on the instance.
        price: US dollars for an hour of the instance; None for the published price.

    Raises:
        ConfigError: A number is not positive, both or none of the workloads are given, or no price is published.

    Example:
        ```python
        from optimum_neuron.simulator import breakeven

        port = breakeven(
            engineer_days=15, day_rate=900, inferences_per_month=2e8, gpu_price=1.2, instance="inf2.xlarge"
        )
        print(port.verdict)
        ```
    """
    numbers = {name: value for name, value in locals().items() if name != "instance" and value is not None}
    _check(numbers)
    machine = choose_machine(instance, price=price)
    name = machine.instance.value.name
    if machine.price_usd_per_h is None:
        message = f"No price of {name} is published, and a break-even compares prices."
        hint = "Pass --price (price=...), US dollars for an hour of the instance."
        raise ConfigError(message, hint=hint, option="price", instance=name)
    per_month = runs_per_month or inferences_per_month
    assert per_month is not None
    if runs_per_month is not None:
        hours, gpu_hours, assumed = _hours_of_runs(per_month, hours_per_run, gpu_hours_per_run)
    else:
        hours, gpu_hours, assumed = _hours_of_inferences(per_month, throughput_per_s, gpu_throughput_per_s)
    return Breakeven(
        instance=Choice(value=name, reason=machine.instance.reason),
        engineer_days=float(engineer_days),
        day_rate=float(day_rate),
        units="inferences" if runs_per_month is None else "runs",
        units_per_month=float(per_month),
        price_usd_per_h=machine.price_usd_per_h,
        price_source=machine.price_source,
        gpu_price_usd_per_h=float(gpu_price),
        hours_per_month=hours,
        gpu_hours_per_month=gpu_hours,
        assumptions=(assumed, "the port is paid once; nothing is discounted; upkeep is the same on both sides"),
    )


def _hours_of_runs(runs: float, hours: float | None, gpu_hours: float | None) -> tuple[float, float, str]:
    """Hours a month on the instance and on the GPU, and the assumption about them."""
    if hours is not None and gpu_hours is not None:
        reason = f"a run takes {hours:g} hours on the instance and {gpu_hours:g} on the GPU, as given"
        return runs * hours, runs * gpu_hours, reason
    known = hours or gpu_hours
    if known is None:
        return runs, runs, "a run takes 1 hour on both: pass --hours-per-run and --gpu-hours-per-run"
    return runs * known, runs * known, f"a run takes as long on both, {known:g} hours: only one of them was given"


def _hours_of_inferences(inferences: float, per_s: float | None, gpu_per_s: float | None) -> tuple[float, float, str]:
    """Hours a month on the instance and on the GPU, and the assumption about them."""
    if per_s is not None and gpu_per_s is not None:
        reason = f"{per_s:g} inferences a second on the instance and {gpu_per_s:g} on the GPU, as given"
        return inferences / (3600 * per_s), inferences / (3600 * gpu_per_s), reason
    known = per_s or gpu_per_s
    if known is not None:
        hours = inferences / (3600 * known)
        return hours, hours, f"{known:g} inferences a second on both: only one of them was given"
    reason = (
        f"one machine of either kind runs all month, {HOURS_PER_MONTH:g} hours, and has to keep up with "
        f"{inferences / (3600 * HOURS_PER_MONTH):.4g} inferences a second: pass --throughput and --gpu-throughput to "
        "pay for hours of use"
    )
    return HOURS_PER_MONTH, HOURS_PER_MONTH, reason


def _check(numbers: dict[str, float]) -> None:
    """Check numbers and their combination; all problems are in one error."""
    problems = [
        f"{name}={value!r} is no number above 0"
        for name, value in numbers.items()
        if isinstance(value, bool)
        or not isinstance(value, (int, float))
        or not math.isfinite(value)
        or not 0 < value <= _LARGEST
    ]
    workloads = [name for name in ("runs_per_month", "inferences_per_month") if name in numbers]
    if len(workloads) != 1:
        problems.append("runs_per_month and inferences_per_month are both given" if workloads else "no workload")
    elif workloads == ["runs_per_month"]:
        problems += [f"{name} is for inferences" for name in numbers if name.endswith("throughput_per_s")]
    else:
        problems += [f"{name} is for runs" for name in numbers if name.endswith("hours_per_run")]
    if problems:
        message = f"The break-even cannot be computed: {'; '.join(problems)}."
        hint = "Give runs_per_month (hours of a run) or inferences_per_month (throughput), and amounts above 0."
        raise ConfigError(message, hint=hint, problems=problems)
