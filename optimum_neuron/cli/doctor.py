"""`optimum-cli neuron doctor`: check this machine and suggest fixes.

Joins `machine.py`, which looks, and `diagnosis.py`, which judges. Exit code 0 unless a finding is a failure.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from optimum.commands.base import CommandInfo

from .output import Out
from .parser import Command


class DoctorCommand(Command):
    COMMAND = CommandInfo(name="doctor", help="Check this machine and say what follows.")
    DESCRIPTION = "Check versions, compiler, CPU, memory, disk and settings. Exit code 1 if anything fails."

    def execute(self, out: Out) -> int:
        from .diagnosis import judge, overall
        from .machine import examine

        findings = judge(examine())
        verdict = overall(findings)
        data = {"verdict": verdict, "findings": [dataclasses.asdict(finding) for finding in findings]}
        out.result(data, human=show_diagnosis, brief=verdict)
        if verdict != "fail":
            out.hint("optimum-cli neuron demo")
        return 1 if verdict == "fail" else 0


def show_diagnosis(out: Out, data: Mapping[str, Any]) -> None:
    """Render findings and, below them, the remedies."""
    out.table(data["findings"], ("verdict", "check", "found", "consequence"))
    remedies = [finding for finding in data["findings"] if finding["remedy"]]
    out.text()
    out.text(f"verdict: {data['verdict']}")
    for finding in remedies:
        out.text(f"  {finding['check']}: {finding['remedy']}")
