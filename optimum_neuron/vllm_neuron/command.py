"""The command `vllm`: its version and help at once, without the imports of the server."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from ..errors import nearest
from .version import VLLM_VERSION

_COMMANDS = ("serve",)
_ELSEWHERE = {
    "bench": "Run a client such as benchmark_serving.py of vLLM's repository against `vllm serve`.",
    "chat": "Send conversations to /v1/chat/completions of `vllm serve`.",
    "collect-env": "Use `optimum-cli env`.",
    "complete": "Send prompts to /v1/completions of `vllm serve`.",
    "run-batch": "Call LLM.generate with all prompts.",
}
"""Commands of vLLM that are not here, with the alternative."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command `vllm`; return its exit status.

    Args:
        argv: its arguments; None for those of the process.
    """
    words = [*(sys.argv[1:] if argv is None else argv)]
    if words[:1] in (["-v"], ["--version"]):
        print(VLLM_VERSION)
        return 0
    if not words or words[0] in ("-h", "--help"):
        print(f"usage: vllm {{{','.join(_COMMANDS)}}} ...\n\nvLLM's commands on a simulated NeuronCore.")
        return 0 if words else 2
    if words[0] not in _COMMANDS:
        end = (
            f". {_ELSEWHERE[words[0]]}" if words[0] in _ELSEWHERE else nearest(words[0], _COMMANDS) or "; use `serve`."
        )
        print(f"vllm: there is no command {words[0]!r} here{end}", file=sys.stderr)
        return 2
    from .server import serve_model

    return serve_model(words[1:])
