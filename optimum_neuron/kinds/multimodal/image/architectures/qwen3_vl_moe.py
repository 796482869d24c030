"""Qwen3-VL with mixtures of experts in its decoder, which runs through transformers' code."""

from __future__ import annotations

import dataclasses

from . import qwen3_vl

ARCHITECTURE = dataclasses.replace(qwen3_vl.ARCHITECTURE, model_types=("qwen3_vl_moe",), text_type=None)
