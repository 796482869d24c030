"""The table of rules: calls give the values that its texts name, and every row is kept by some call."""

from __future__ import annotations

import ast
import re
import string
from pathlib import Path

import optimum_neuron.nki
from optimum_neuron.nki import Rule

FILES = sorted(Path(optimum_neuron.nki.__file__).parent.rglob("*.py"))


def names_of(rule):
    """The values that the texts of a rule name."""
    fields = [field for text in (rule.message, rule.remedy) for _, field, _, _ in string.Formatter().parse(text)]
    return {re.split(r"[.\[]", field)[0] for field in fields if field}


def rules_in(node):
    """The rules that an expression names."""
    attributes = [part for part in ast.walk(node) if isinstance(part, ast.Attribute)]
    return [Rule[part.attr] for part in attributes if ast.unparse(part.value) == "Rule" and part.attr.isupper()]


def test_calls_give_the_values_that_texts_name():
    kept = set()
    for file in FILES:
        for call in ast.walk(ast.parse(file.read_text())):
            if isinstance(call, ast.Call) and ast.unparse(call.func) in ("require", "refuse"):
                rules = [rule for value in call.args for rule in rules_in(value)]
                values = {keyword.arg for keyword in call.keywords}
                kept |= set(rules)
                assert [(rule, names_of(rule) - values) for rule in rules if names_of(rule) - values] == []
    assert kept == set(Rule)
