"""Image generation: a U-Net, a transformer, and a decoder against diffusers eager and OpenVINO; memory; exports.

Weights are random: the U-Net and the decoder have the sizes of Stable Diffusion 1.5, the transformer is as Flux with 99
million parameters, pictures have 256 pixels a side. Each engine has a process of its own, and they are measured in
turn. Eager mode has the better dtype: bfloat16 where the CPU multiplies it. `--models unet,vae` selects some,
`--dtypes bfloat16` one dtype, `--quick` takes reduced sizes, and `--openvino_python` names a Python with openvino and
diffusers, if this one has no openvino.
"""

from __future__ import annotations

import contextlib
import importlib.util
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from optimum_neuron.compiler.lower import probe_cpu

from .diffusion_engine import Engine
from .diffusion_models import NAMES, save_model
from .harness import Row, Settings, in_turn, ratio, rows_of

BARS = {"eager": "bar: 1.3", "OpenVINO": "bar: 1.0"}
MAX_DIFFERENCE = {"float32": 1e-2, "bfloat16": 1e-1}
"""Of the results of ours and another engine, as a part of the largest number; the larger one for two dtypes."""


def run(settings: Settings) -> Iterator[Row]:
    """Measure each model in each dtype."""
    wanted = settings.models or NAMES
    if unknown := sorted({*wanted} - {*NAMES}):
        raise SystemExit(f"--models: no {', '.join(unknown)} here; there are {', '.join(NAMES)}")
    for model in wanted:
        for dtype in settings.dtypes:
            with tempfile.TemporaryDirectory() as work:
                yield from _measured(model, dtype, Path(work), settings)


def _measured(model: str, dtype: str, folder: Path, settings: Settings) -> Iterator[Row]:
    what = f"{model}, {dtype}" + (", reduced" if settings.quick else "")
    save_model(model, folder, dtype=dtype, reduced=settings.quick)
    with Engine("export", model, folder, dtype=dtype) as export:
        export.wait()
        seconds = export.facts()
    yield Row(what=f"{what}: export without host code", value=seconds["-O1"], unit="s", note="bar: 60 (unet)")
    yield Row(what=f"{what}: export with host code", value=seconds["-O2"], unit="s", note="0 to compile where stored")
    best = "bfloat16" if probe_cpu().has_bf16_dot else "float32"
    with contextlib.ExitStack() as stack:
        engines = {
            name: stack.enter_context(Engine(name, model, folder, dtype=own, python=python))
            for name, own, python in (
                ("ours", dtype, sys.executable),
                ("eager", best, sys.executable),
                ("OpenVINO", dtype, _openvino_python(settings)),
            )
            if python is not None
        }
        for engine in engines.values():
            engine.wait()
        for name, own in (("eager", best), ("OpenVINO", dtype)):
            if name in engines:
                limit = max(MAX_DIFFERENCE[own], MAX_DIFFERENCE[dtype])
                _require_agreement(engines["ours"], engines[name], limit)
        figures = in_turn({name: engine.time for name, engine in engines.items()}, settings.rounds)
        facts = engines["ours"].facts()
    yield from rows_of({f"{what}: {name}": values for name, values in figures.items()}, "ms")
    for name, values in figures.items():
        if name != "ours":
            yield ratio(f"{what}: {name} over ours", values, figures["ours"], note=BARS[name])
    needed = facts["weights"] + facts["activations"]
    mebibytes = {name: f"{facts[name] / 2**20:.0f}" for name in ("weights", "activations", "libraries")}
    note = (
        f"bar: 1.3; {mebibytes['weights']} + {mebibytes['activations']} MiB, without {mebibytes['libraries']} of torch"
    )
    yield Row(what=f"{what}: memory over weights + activations", value=facts["peak"] / needed, unit="x", note=note)


def _openvino_python(settings: Settings) -> str | None:
    if settings.openvino_python is not None:
        return settings.openvino_python
    return sys.executable if importlib.util.find_spec("openvino") is not None else None


def _require_agreement(ours: Engine, other: Engine, limit: float) -> None:
    """Both engines compute the same: figures of different results compare nothing."""
    import torch

    expected, found = (torch.load(engine.result_file, weights_only=True).float() for engine in (ours, other))
    error = (found - expected).abs().max() / expected.abs().max()
    assert error <= limit, f"{other.result_file.stem} differs from ours by {error}"
