"""Budgets: limits of models, kernels, and scripts, checked in CI, with what moved since the last recorded run.

limits.py          what can be limited, and in which direction
config.py          `neuron.toml`: entries with their options and limits
measure.py         the values of an entry, simulated; cached by content
weights.py         values that depend on a model's weights
report.py          values beside limits and the recorded ones, as data, Markdown, and JUnit XML
pytest_plugin.py   the same from tests: fixtures, and `pytest --neuron`

report = check_budget("neuron.toml")
assert report.passed, report.to_markdown()
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
