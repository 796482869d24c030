"""The release of vLLM whose interface this is; imported without torch, for `vllm --version` and `vllm.__version__`."""

from __future__ import annotations

VLLM_VERSION = "0.11.0"
"""The one of vllm-neuron 0.2."""
VLLM_VERSION_TUPLE = (0, 11, 0)
