"""`python -m benchmarks [NAME ...] [--rounds N] [--sequence_length N] [--optlevel N] [--batch_size N] [--json]`

`--html FILE` also writes a page with plots; `--quick` shortens `soak`; `--models` selects those of `families` and of
`diffusion`, and `--openvino_python` adds OpenVINO to them. Rows are printed as soon as they are measured.
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
from pathlib import Path
from typing import Any

from optimum_neuron.compiler.lower import probe_compiler, probe_cpu
from optimum_neuron.pages import benchmarks_page

from . import contenders
from .harness import Settings

NAMES = (
    "agreement",
    "decode",
    "quantized",
    "kv_cache",
    "prefill",
    "encoders",
    "start",
    "first",
    "export",
    "device",
    "xla",
    "compile",
    "kernels",
    "training",
    "speech",
    "tensor_parallel",
    "serving",
    "speculation",
    "doors",
)

LONG_NAMES = ("families", "diffusion", "faults", "served_time", "soak", "serve", "fuzz", "fleet")
"""Benchmarks that run only where they are named."""


def main() -> None:
    """Run benchmarks and print their figures."""
    known = (*NAMES, *LONG_NAMES)
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Ours and the alternative, in turn.")
    parser.add_argument(
        "names",
        nargs="*",
        metavar="NAME",
        help=f"one or more of {', '.join(known)}; default: all but {', '.join(LONG_NAMES)}",
    )
    parser.add_argument("--rounds", type=int, default=Settings.rounds)
    parser.add_argument("--sequence_length", type=int, default=Settings.sequence_length)
    parser.add_argument("--model", default=Settings.model)
    parser.add_argument("--optlevel", choices=("1", "2", "3"), default=Settings.optlevel, help="for soak")
    parser.add_argument("--batch_size", type=int, help="for families; default: 1 and 4")
    parser.add_argument("--models", help="for families, diffusion: models, separated by commas; default: all")
    parser.add_argument("--dtypes", default=",".join(Settings.dtypes), help="for diffusion, separated by commas")
    parser.add_argument("--openvino_python", help="for families, diffusion: Python of an environment with OpenVINO")
    parser.add_argument(
        "--quick",
        action="store_true",
        help="soak, faults, served_time: a tenth of the calls; soak: a tiny random model; diffusion: reduced sizes",
    )
    parser.add_argument("--soak", type=float, default=0, metavar="MINUTES", help="serve: clients go on for so long")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--html", metavar="FILE", help="write a self-contained page with plots of the same figures")
    args = parser.parse_args()
    unknown = [name for name in args.names if name not in known]
    if unknown:
        parser.error(f"no such benchmark: {', '.join(unknown)}; there are {', '.join(known)}")
    import torch

    settings = Settings(
        rounds=args.rounds,
        sequence_length=args.sequence_length,
        model=args.model,
        optlevel=args.optlevel,
        batch_size=args.batch_size,
        models=None if args.models is None else tuple(args.models.split(",")),
        dtypes=tuple(args.dtypes.split(",")),
        openvino_python=args.openvino_python,
        soak_minutes=args.soak,
        quick=args.quick,
    )
    host = f"{torch.get_num_threads()} threads, {probe_cpu()}, {probe_compiler()}, torch {torch.__version__}"
    if not args.json:
        print(f"this host: {host}; sequence_length {settings.sequence_length}, {settings.rounds} rounds in turn")
    results: dict[str, list[dict[str, Any]]] = {}
    for name in args.names or NAMES:
        print(f"running {name} ...", file=sys.stderr)
        if not args.json:
            print(f"\n{name}")
        results[name] = []
        for row in importlib.import_module(f"{__package__}.{name}").run(settings):
            results[name].append(row.to_dict())
            if not args.json:
                spread = "" if row.low is None else f"[{row.low:.4g} .. {row.high:.4g}]"
                print(f"  {row.what:<52} {row.value:10.4g} {row.unit:<8} {spread:<22} {row.note}", flush=True)
        contenders.forget()
    data = {"host": host, "simulated_target": True, "results": results}
    if args.json:
        print(json.dumps(data, indent=2))
    if args.html:
        Path(args.html).write_text(benchmarks_page(data).text(), encoding="utf-8")


if __name__ == "__main__":
    main()
