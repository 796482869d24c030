"""How tensor parallelism divides the family, see `models/parallel.py`."""

from __future__ import annotations

PLAN: dict[str, str] = {
    "embed": "vocabulary",
    "layers.*.attention.qkv": "heads",
    "layers.*.attention.out": "from_heads",
    "layers.*.mlp.gate_up": "columns",
    "layers.*.mlp.down": "rows",
    "head": "gathered",
}
