"""`torch_neuronx.analyze`: which operators of a model the target supports, without compiling or refusing anything."""

from __future__ import annotations

import collections
import json
import warnings
from collections.abc import Callable, Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..compiler import COMPILER_VERSION
from ..compiler.rules import MAKES, RULE, UNKNOWN, USES
from ..version import __version__
from .compile import checked_flags
from .entry import make_entry
from .survey import SurveyedCall, survey

if TYPE_CHECKING:
    from torch.fx import Node

REPORT_FILE = "analysis.json"
"""The report in `compiler_workdir`."""

_WITHOUT_EFFECT = {
    "max_workers": "operators are judged by rules, which takes one pass and no workers",
    "is_hf_transformers": "models of transformers are captured like any other",
}


def analyze(
    func: Callable[..., Any],
    example_inputs: object,
    compiler_workdir: str | Path | None = None,
    additional_ignored_ops: Collection[str] = frozenset(),
    max_workers: int = 4,
    is_hf_transformers: bool = False,
    cleanup: bool = False,
) -> dict[str, Any]:
    """Tell which operators are supported by the target that the environment names.

    Args:
        func: module or function.
        example_inputs: a tensor or a tuple, as for `trace`.
        compiler_workdir: folder that gets the report as `analysis.json`.
        additional_ignored_ops: operators to leave out, such as "aten::view".
        max_workers: accepted; another value than 4 has no effect, and a warning says so.
        is_hf_transformers: accepted; has no effect, and a warning says so.
        cleanup: leave nothing in `compiler_workdir`.

    Returns:
        Plain data: versions, the share of supported calls as "100.00%", calls by supported operator, and each kind of
        unsupported call with the place where it fails, where it comes from, and its graph.

    Raises:
        CaptureError: the code depends on values of tensors.

    Example:
        ```python
        import torch
        from optimum_neuron.tracing import analyze

        report = analyze(torch.nn.Linear(4, 2), torch.rand(3, 4))
        assert report["support_percentage"] == "100.00%"
        assert report["supported_operators"] == {"aten::linear": 1}
        ```
    """
    ignored = [
        name for name, used in (("max_workers", max_workers != 4), ("is_hf_transformers", is_hf_transformers)) if used
    ]
    if ignored:
        reasons = "; ".join(f"{name} ({_WITHOUT_EFFECT[name]})" for name in ignored)
        warnings.warn(f"analyze arguments without an effect here: {reasons}", stacklevel=2)
    flags = checked_flags(None)
    calls = survey(make_entry(func, example_inputs, {}), flags.target, flags.flags)
    counted = [call for call in calls if call.kind not in additional_ignored_ops]
    supported = collections.Counter(call.kind for call in counted if call.supported)
    share = sum(supported.values()) / len(counted) if counted else 1.0
    report = {
        "torch_neuronx_version": f"{__version__}+simulated",
        "neuronx_cc_version": f"{COMPILER_VERSION}+simulated",
        "support_percentage": f"{share:.2%}",
        "supported_operators": dict(supported.most_common()),
        "unsupported_operators": [_unsupported(call) for call in counted if not call.supported],
    }
    if compiler_workdir is not None and not cleanup:
        Path(compiler_workdir).mkdir(parents=True, exist_ok=True)
        (Path(compiler_workdir) / REPORT_FILE).write_text(json.dumps(report, indent=4) + "\n")
    return report


def _unsupported(call: SurveyedCall) -> dict[str, str]:
    ruling = call.ruling
    # Shapes and operators without any lowering never reach the compiler of the real stack.
    early = ruling.rule in (RULE, UNKNOWN, MAKES, USES)
    where = " in ".join(part for part in (ruling.source_line, ruling.module_path or "the top level") if part)
    return {
        "kind": call.kind,
        "failureAt": "Lowering to HLO" if early else "neuronx-cc",
        "call": f"{where}\n{ruling.code}: {ruling.reason}",
        "opGraph": _graph_text(call.node, call.kind),
    }


def _graph_text(node: Node, kind: str) -> str:
    """The call as a graph of one operator."""
    arguments = ", ".join(f"%{a.name}" if hasattr(a, "meta") else str(a) for a in node.args)
    inputs = ",\n      ".join(
        f"%{source.name} : {_type_text(source.meta.get('val'))}" for source in node.all_input_nodes
    )
    result = f"%{node.name} : {_type_text(node.meta.get('val'))} = {kind}({arguments})"
    return f"graph({inputs}):\n  {result}\n  return (%{node.name})\n"


def _type_text(value: Any) -> str:
    if isinstance(value, (tuple, list)):
        return f"({', '.join(map(_type_text, value))})"
    import torch

    if not isinstance(value, torch.Tensor):
        return type(value).__name__
    return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}"
