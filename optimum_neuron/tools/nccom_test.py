"""`nccom-test allr`: the simulated times of an all-reduce between cores of one instance, by size.

The times come from the performance model, whose constants were fitted on published times of whole decoders: no
all-reduce alone is published, so the interval is wide. No data is moved. Other collectives have no constants.

    nccom-test -r 2 -b 1KB -e 1MB -d bf16 allr
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..base.wording import time_span
from ..cli import NeuronParser, Out, positive_int, run_guarded
from ..errors import ConfigError

ALL_REDUCE = "allr"
COLLECTIVES = (ALL_REDUCE, "allg", "redsc", "alltoall", "sendrecv", "permute", "bcast")
"""Names of collectives; the first is simulated."""
ELEMENT_BYTES = {"fp32": 4, "bf16": 2, "fp16": 2, "int32": 4, "uint32": 4, "int8": 1, "uint8": 1}
_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30}
_SIZE = re.compile(r"([0-9]+)([KMG]?)B?", re.IGNORECASE)
_DEFAULT_BYTES = 32 * 2**20
_MAX_SIZES = 1000
_IGNORED = ("--iters", "--warmup_iters", "--check")
NOTES = (
    "constants are fitted on published times of whole decoders; no time of an all-reduce alone is published",
    "no data is moved, so results are not checked",
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run `nccom-test` and return its exit code."""
    parser = NeuronParser(prog="nccom-test", description="Times of an all-reduce, simulated.")
    parser.add_argument("collective", choices=COLLECTIVES, help="allr (all-reduce); the others are not simulated")
    parser.add_argument("-r", "--nworkers", type=positive_int, required=True, metavar="N", help="cores")
    parser.add_argument("-N", "--nnodes", type=positive_int, metavar="N", help="instances: 1 is simulated")
    parser.add_argument("-b", "--minbytes", type=num_bytes, metavar="SIZE", help="smallest size (default: 32MB)")
    parser.add_argument("-e", "--maxbytes", type=num_bytes, metavar="SIZE", help="largest size (default: --minbytes)")
    steps = parser.add_mutually_exclusive_group()
    steps.add_argument("-i", "--stepbytes", type=num_bytes, metavar="SIZE", help="add this to get the next size")
    steps.add_argument("-f", "--stepfactor", type=positive_int, metavar="N", help="or multiply by this (default: 2)")
    parser.add_argument("-d", "--datatype", choices=tuple(ELEMENT_BYTES), default="fp32", help="dtype (default: fp32)")
    parser.add_argument("--instance", metavar="NAME", help="simulated instance (default: OPTIMUM_NEURON_INSTANCE)")
    parser.add_argument("--json", action="store_true", help="print one JSON document on stdout")
    ignored = parser.add_argument_group("accepted without an effect, with a warning")
    ignored.add_argument("-n", "--iters", metavar="N")
    ignored.add_argument("-w", "--warmup_iters", metavar="N")
    ignored.add_argument("-c", "--check", action="store_true")
    options = parser.parse_args(arguments)
    out = Out("json" if options.json else "human")
    return run_guarded(lambda out: _run(options, out), out, command="nccom-test")


def num_bytes(text: str) -> int:
    """Parse a size such as 8, 64KB or 1G, in binary units."""
    match = _SIZE.fullmatch(text)
    if match is None or int(match[1]) == 0:
        raise argparse.ArgumentTypeError(f"'{text}' is not a size such as 8, 64KB or 1GB")
    return int(match[1]) * _UNITS[match[2].upper()]


def _run(options: argparse.Namespace, out: Out) -> None:
    ignored = [name for name in _IGNORED if getattr(options, name.removeprefix("--"))]
    if ignored:
        out.warning(f"{', '.join(ignored)} without an effect: no data is moved, and every call takes the same time")
    data = _times(options)
    out.result(data, human=_show, brief=str(data["avg_busbw_gb_per_s"]))


def _times(options: argparse.Namespace) -> dict[str, Any]:
    from ..hardware import require_compilable, require_core_count
    from ..simulator import WIDE, all_reduce_s, choose_machine

    _require_simulated(options)
    machine, num_cores = choose_machine(options.instance), options.nworkers
    require_compilable(machine.target)
    instance = machine.instance.value
    require_core_count(instance, num_cores)
    rows = []
    for size in sizes_of(options.minbytes, options.maxbytes, options.stepbytes, options.stepfactor):
        count = max(size // ELEMENT_BYTES[options.datatype], 1)
        moved = count * ELEMENT_BYTES[options.datatype]
        seconds = all_reduce_s(moved, machine.rates, machine.fitted, num_chips=machine.num_chips(num_cores))
        time_us = 1e6 * seconds
        # As NCCL's tests define it: each core sends and receives this much of the buffer.
        share = 2 * (num_cores - 1) / num_cores
        rows.append(
            {
                "size_bytes": moved,
                "count": count,
                "time_us": {"value": time_us, "low": time_us * WIDE.low, "high": time_us * WIDE.high},
                "algbw_gb_per_s": moved / seconds / 1e9,
                "busbw_gb_per_s": share * moved / seconds / 1e9,
            }
        )
    return {
        "simulated": True,
        "collective": options.collective,
        "instance": instance.name,
        "target": machine.target.name,
        "num_cores": num_cores,
        "datatype": options.datatype,
        "sizes": rows,
        "avg_busbw_gb_per_s": sum(row["busbw_gb_per_s"] for row in rows) / len(rows),
        "notes": list(NOTES),
    }


def _require_simulated(options: argparse.Namespace) -> None:
    problems = []
    if options.collective != ALL_REDUCE:
        problems.append(f"{options.collective} is not simulated: the performance model only covers all-reduce.")
    if options.nworkers < 2:
        problems.append("-r is 1, but an all-reduce needs at least 2 cores.")
    if (options.nnodes or 1) > 1:
        problems.append(f"-N is {options.nnodes}, but links between instances are not simulated.")
    if problems:
        hint = "Run allr with -r 2 or more, on one instance (-N 1)."
        raise ConfigError("\n".join(problems), hint=hint, problems=problems)


def sizes_of(low: int | None, high: int | None, step: int | None, factor: int | None) -> Iterator[int]:
    """List sizes from the smallest to the largest."""
    low = (min(high, _DEFAULT_BYTES) if high else _DEFAULT_BYTES) if low is None else low
    high = low if high is None else high
    factor = 2 if factor is None else factor
    problem = None
    if high < low:
        problem = f"--maxbytes is {high}, which is below --minbytes {low}."
    elif step is None and factor == 1 and high > low:
        problem = "--stepfactor is 1, so sizes never grow."
    elif step is not None and (high - low) // step >= _MAX_SIZES:
        problem = f"--stepbytes is {step}, which gives {(high - low) // step + 1:,} sizes; the limit is {_MAX_SIZES:,}."
    if problem:
        raise ConfigError(problem, hint="Pass for example -b 1KB -e 1MB -f 2.", minbytes=low, maxbytes=high)
    size = low
    while size <= high:
        yield size
        size = size + step if step is not None else size * factor
        if low == high:
            return


def _show(out: Out, data: Mapping[str, Any]) -> None:
    where = f"{data['num_cores']} cores of {data['instance']} ({data['target']})"
    out.text(f"all-reduce between {where}: simulated, not measured")
    rows = [
        {
            "size B": row["size_bytes"],
            "count": row["count"],
            "type": data["datatype"],
            "time us": row["time_us"]["value"],
            "80 % interval": " to ".join(time_span(row["time_us"][end] / 1e6) for end in ("low", "high")),
            "algbw GB/s": row["algbw_gb_per_s"],
            "busbw GB/s": row["busbw_gb_per_s"],
        }
        for row in data["sizes"]
    ]
    out.table(rows)
    out.text(f"average busbw: {data['avg_busbw_gb_per_s']:.4g} GB/s")
    out.remarks(data)


if __name__ == "__main__":
    sys.exit(main())
