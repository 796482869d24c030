"""Families: decode and prefill through shared blocks, against the generic path and transformers eager.

Weights are random and sizes are published ones: no checkpoint is needed. Models of one architecture are measured in
turn and released before the next. `--model` and `--optlevel` do not matter here; `--models gpt2,phi` measures some
model types, and `--batch_size` one batch size alone. `--openvino_python PYTHON`, the Python of an environment with
optimum-intel, adds OpenVINO.
"""

from __future__ import annotations

import dataclasses
import functools
import gc
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from .decode import NUM_NEW, tokens_per_s
from .harness import Row, Settings, in_turn, ratio, rows_of, seconds
from .openvino_server import Server

NUM_PROMPT = 32
BATCH_SIZES = (1, 4)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Architecture:
    """Sizes of one model."""

    model_type: str
    sizes: dict[str, Any]


ARCHITECTURES = {
    "gpt2 (124M)": Architecture(model_type="gpt2", sizes={}),
    "qwen2 (0.5B)": Architecture(
        model_type="qwen2",
        sizes={
            "vocab_size": 151936,
            "hidden_size": 896,
            "intermediate_size": 4864,
            "num_hidden_layers": 24,
            "num_attention_heads": 14,
            "num_key_value_heads": 2,
            "rope_parameters": {"rope_type": "default", "rope_theta": 1e6},
            "tie_word_embeddings": True,
        },
    ),
    "gemma3 (270M)": Architecture(
        model_type="gemma3_text",
        sizes={
            "vocab_size": 262144,
            "hidden_size": 640,
            "intermediate_size": 2048,
            "num_hidden_layers": 18,
            "num_attention_heads": 4,
            "num_key_value_heads": 1,
            "head_dim": 256,
            "sliding_window": 512,
        },
    ),
    "qwen3_moe (16 experts, 4 per token, 310M)": Architecture(
        model_type="qwen3_moe",
        sizes={
            "vocab_size": 32000,
            "hidden_size": 768,
            "moe_intermediate_size": 768,
            "num_hidden_layers": 8,
            "num_attention_heads": 12,
            "num_key_value_heads": 4,
            "head_dim": 64,
            "num_experts": 16,
            "num_experts_per_tok": 4,
        },
    ),
    "phi (phi-1's width, 8 of its 24 layers)": Architecture(
        model_type="phi",
        sizes={"vocab_size": 51200, "hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 8},
    ),
}


def run(settings: Settings) -> Iterator[Row]:
    """Measure one architecture after the other."""
    known = [architecture.model_type for architecture in ARCHITECTURES.values()]
    wanted = known if settings.models is None else settings.models
    if unknown := sorted({*wanted} - {*known}):
        raise SystemExit(f"--models: no {', '.join(unknown)} here; there are {', '.join(known)}")
    for name, architecture in ARCHITECTURES.items():
        if architecture.model_type not in wanted:
            continue
        with tempfile.TemporaryDirectory() as work:
            folder = _checkpoint(architecture, Path(work) / architecture.model_type)
            for batch_size in BATCH_SIZES if settings.batch_size is None else (settings.batch_size,):
                yield from _measured(f"{name}, batch {batch_size}", folder, batch_size, settings)
                gc.collect()


def _checkpoint(architecture: Architecture, folder: Path) -> Path:
    """Write random weights in bfloat16."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    torch.manual_seed(0)
    config = AutoConfig.for_model(architecture.model_type, **architecture.sizes)
    AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).save_pretrained(folder)
    return folder


def _measured(name: str, folder: Path, batch_size: int, settings: Settings) -> list[Row]:
    import torch
    from transformers import AutoModelForCausalLM

    from optimum_neuron import NeuronModelForCausalLM

    models = {
        f"ours, {path}": NeuronModelForCausalLM.from_pretrained(
            folder,
            export=True,
            batch_size=batch_size,
            sequence_length=settings.sequence_length,
            torch_dtype="bfloat16",
            family=family,
            wait_for_host_code=True,
            disable_validation=True,
        )
        for path, family in (("family", None), ("generic", "generic"))
    }
    for dtype in ("bfloat16", "float32"):
        eager = AutoModelForCausalLM.from_pretrained(folder, dtype=getattr(torch, dtype)).eval()
        models[f"eager, {dtype}"] = eager
    generator = torch.Generator().manual_seed(0)
    prompt = torch.randint(100, 10000, (batch_size, NUM_PROMPT), generator=generator)
    long = torch.randint(100, 10000, (batch_size, settings.sequence_length - 1), generator=generator)

    def prefill(model: Any) -> Callable[[], float]:
        def once() -> float:
            with torch.no_grad():
                return 1e3 * seconds(lambda: model(long, logits_to_keep=1, use_cache=True))

        return once

    decode = {who: functools.partial(tokens_per_s, model, prompt) for who, model in models.items()}
    first = {who: prefill(model) for who, model in models.items()}
    servers = _openvino(name, folder, settings)
    for who, server in servers.items():
        decode[who] = functools.partial(server.decode, batch_size, NUM_PROMPT, NUM_NEW)
        first[who] = functools.partial(server.prefill, batch_size, settings.sequence_length - 1)
    rates = in_turn(decode, settings.rounds)
    times = in_turn(first, settings.rounds)
    for server in servers.values():
        server.close()
    return [
        *rows_of({f"{name}: decode, {who}": values for who, values in rates.items()}, "step/s"),
        *_ratios(f"{name}: decode", rates, note="bars: 1.0 of generic, 2.0 of eager"),
        *rows_of({f"{name}: prefill, {who}": values for who, values in times.items()}, "ms"),
        *_ratios(f"{name}: prefill", {who: [1 / ms for ms in each] for who, each in times.items()}, note="bar: 1.0"),
    ]


def _openvino(name: str, folder: Path, settings: Settings) -> dict[str, Server]:
    """OpenVINO in two dtypes; none where it was not asked for, or cannot convert the model."""
    if settings.openvino_python is None:
        return {}
    try:
        return {f"OpenVINO, {dtype}": Server(settings.openvino_python, folder, dtype) for dtype in ("bf16", "f32")}
    except RuntimeError as error:
        print(f"{name}: {error}", file=sys.stderr)
        return {}


def _ratios(what: str, rates: dict[str, list[float]], *, note: str) -> list[Row]:
    """Our family over the generic path, and over others in their better dtype."""
    family = rates["ours, family"]
    rows = [ratio(f"{what}, family over generic", family, rates["ours, generic"], note=note)]
    for other in ("eager", "OpenVINO"):
        dtypes = [values for who, values in rates.items() if who.startswith(f"{other}, ")]
        if dtypes:
            best = [max(values) for values in zip(*dtypes, strict=True)]
            rows.append(ratio(f"{what}, family over {other}", family, best, note=note))
    return rows
