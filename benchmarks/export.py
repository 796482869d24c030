"""Cold export: wall time with empty caches, of 6 and of 30 layers side by side; a 70B configuration without weights."""

from __future__ import annotations

import json
import re
import sys
import tempfile
from pathlib import Path

from . import contenders, fresh
from .harness import Row, Settings, in_turn, ratio, rows_of, seconds

LLAMA_70B = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 8192, "intermediate_size": 28672,
    "num_hidden_layers": 80, "num_attention_heads": 64, "num_key_value_heads": 8, "vocab_size": 128256,
    "max_position_embeddings": 8192, "rms_norm_eps": 1e-5, "tie_word_embeddings": False, "dtype": "bfloat16",
    "rope_parameters": {"rope_type": "default", "rope_theta": 500000.0},
}  # fmt: skip
"""Sizes of Llama 3 70B (its published config.json)."""


def run(settings: Settings) -> list[Row]:
    """Export in a fresh process with fresh caches each time."""
    rounds = max(1, settings.rounds // 3)
    options = ("-O2", "--sequence_length", str(settings.sequence_length))
    with tempfile.TemporaryDirectory() as work:
        whole = contenders.folder(settings.model)
        short = _shortened(settings.model, 6, Path(work) / "six")
        figures = in_turn(
            {
                "cold export -O2, 6 layers": lambda: fresh.export_s(short, *options),
                "cold export -O2, all layers": lambda: fresh.export_s(whole, *options),
            },
            rounds,
        )
        rows = rows_of(figures, "s", note="fresh process, empty caches, validation included")
        six, all_layers = figures.values()
        rows.append(ratio("all layers over 6 layers", all_layers, six))
        config = Path(work) / "70b"
        config.mkdir()
        (config / "config.json").write_text(json.dumps(LLAMA_70B))
        return rows + _without_weights(config)


def _shortened(model: str, num_layers: int, folder: Path) -> Path:
    """The same checkpoint with its first layers only."""
    from transformers import AutoModelForCausalLM

    whole = AutoModelForCausalLM.from_pretrained(contenders.folder(model))
    whole.model.layers = whole.model.layers[:num_layers]
    whole.config.num_hidden_layers = num_layers
    if getattr(whole.config, "layer_types", None):
        whole.config.layer_types = whole.config.layer_types[:num_layers]
    whole.save_pretrained(folder)
    return folder


def _without_weights(config: Path) -> list[Row]:
    program = (
        "import sys\n"
        "from optimum_neuron import main_export\n"
        "main_export(sys.argv[1], sys.argv[2], instance_type='trn2', sequence_length=4096)\n"
        "print('peak', open('/proc/self/status').read().split('VmHWM:')[1].split()[0])\n"
    )
    with tempfile.TemporaryDirectory() as work:
        command = [sys.executable, "-c", program, str(config), f"{work}/out"]
        printed: list[str] = []
        elapsed = seconds(lambda: printed.append(fresh.run(command)))
    peak = int(re.findall(r"peak (\d+)", printed[0])[0]) / 1024**2
    return [
        Row(what="Llama 70B configuration to a NEFF, no weights", value=elapsed, unit="s", note="bar: 60 s"),
        Row(what="its peak memory", value=peak, unit="GiB", note="bar: 4 GB"),
    ]
