"""The operators of an entry with their rulings, without raising errors: read by `analyze` and the partitioner."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from ..base.core import Ruling, Verdict
from ..compiler import CompilerFlags
from ..compiler.rules import base_name, judge_nodes
from ..hardware import Target
from .entry import Entry

if TYPE_CHECKING:
    from torch.fx import Node

_BOOKKEEPING = ("aten._assert",)
"""Prefixes of operators that tracing adds."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class SurveyedCall:
    """A call of an operator."""

    node: Node
    """In the captured graph."""
    ruling: Ruling
    """Verdict of the target."""

    @property
    def kind(self) -> str:
        """The operator as users name it, for example "aten::linear"."""
        return base_name(self.ruling.op).replace(".", "::", 1)

    @property
    def supported(self) -> bool:
        """Whether it runs on a core."""
        return self.ruling.verdict is not Verdict.UNSUPPORTED


def survey(entry: Entry, target: Target, flags: CompilerFlags) -> list[SurveyedCall]:
    """Capture an entry whole and judge its operators, in the order of the graph."""
    exported = entry.capture("survey", shorten=False).exported
    judged = judge_nodes(exported, target, implicit_integer_downcast=flags.implicit_integer_downcast)
    calls = [SurveyedCall(node=call.node, ruling=ruling) for call, ruling in judged if call is not None]
    return [call for call in calls if "::" in call.kind and not call.ruling.op.startswith(("python.", *_BOOKKEEPING))]
