"""The command `vllm`."""

from __future__ import annotations

from ._opt_in import refuse_real


def main() -> int:
    """Run the command line; return its exit status."""
    refuse_real()
    from optimum_neuron.vllm_neuron import main as run

    return run()


def api_server() -> int:
    """Run `python -m vllm.entrypoints.openai.api_server`; return its exit status."""
    refuse_real()
    from optimum_neuron.vllm_neuron import api_server as run

    return run()
