"""The table of error codes, its page, and its agreement with the rules."""

import re
from pathlib import Path

from optimum_neuron.compiler import rules
from optimum_neuron.compiler.rules import to_markdown
from optimum_neuron.compiler.rules.codes import CODES, DOWNCASTS, OPERATOR_CHECK

PAGE = Path(__file__).parents[3] / "docs" / "error-codes.md"


def test_docs_page_matches_table():
    assert PAGE.read_text() == to_markdown(), "write it again, with `to_markdown`"


def test_every_code_has_its_facts():
    for name, code in CODES.items():
        assert re.fullmatch(r"NCC_E[A-Z]{3}\d{3}", name)
        assert code.code == name and code.meaning
        assert code.remedy and not code.remedy.endswith(".")


def test_rules_use_exactly_the_simulated_codes():
    used = set()
    for path in Path(rules.__file__).parent.glob("*.py"):
        if path.name not in ("base.py", "codes.py"):
            code = "\n".join(re.findall(r'"NCC_E[A-Z]{3}\d{3}"', path.read_text()))
            used |= set(re.findall(r"NCC_E[A-Z]{3}\d{3}", code))
    assert used == {name for name, code in CODES.items() if code.simulated_by == OPERATOR_CHECK}


def test_downcasts_match_compiler_flag():
    assert DOWNCASTS == ("all_reduce", "dot", "pow", "reduce_scatter", "scatter")
    assert CODES["NCC_EVRF035"].downcast == "dot" and CODES["NCC_EVRF013"].downcast is None
