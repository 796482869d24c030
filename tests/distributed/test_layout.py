"""The table of combinations in docs/training.md: "no" is an error, "yes" is a case that is tested; other arguments."""

from __future__ import annotations

import dataclasses
import logging
import re
from pathlib import Path
from types import SimpleNamespace

import pytest

from optimum_neuron.distributed import WITHOUT_EFFECT, TrainingNeuronConfig, combination_problems
from tests.distributed.layouts import CASES
from tests.distributed.test_layouts import COMPILED, FOUR, TWO

PAGE = Path(__file__).resolve().parents[2] / "docs" / "training.md"
FIELDS = {
    "zero_1": dict(pipeline_parallel_use_zero1_optimizer=True),
    "fsdp": dict(fsdp=True),
    "tensor_parallel_size": dict(tensor_parallel_size=2),
    "sequence_parallel": dict(tensor_parallel_size=2, sequence_parallel_enabled=True),
    "context_parallel_size": dict(context_parallel_size=2),
    "pipeline_parallel_size": dict(pipeline_parallel_size=2),
}
"""Arguments by their names in `TrainingNeuronConfig`."""
KINDS = {"LoRA": "lora", "other adapters": "dora", "16 bits": "bfloat16"}
"""First part of the names of a column's cases."""


def table():
    """Cells of the table, by row and column."""
    (text,) = re.findall(r"\n(\| together with .*?)\n\n", PAGE.read_text(), flags=re.S)
    head, _, *rows = [[cell.strip().strip("`") for cell in line.strip("|").split("|")] for line in text.splitlines()]
    return {(row[0], column): cell for row in rows for column, cell in zip(head[1:], row[1:], strict=True)}


CELLS = table()


def problems(*names):
    layout = TrainingNeuronConfig(**{key: value for name in names for key, value in FIELDS[name].items()})
    return layout.problems() + combination_problems(layout, SimpleNamespace(use_cpu=False, enable_mfu_metrics=False))


def has(case, name):
    return name in CASES[case.rpartition("-")[2]]


@pytest.mark.parametrize(("row", "column"), CELLS, ids=lambda name: name.replace(" ", "_"))
def test_cell(row, column):
    cell, cases = CELLS[row, column], [case for case in (*TWO, *FOUR) if has(case, row)]
    assert cell in ("yes", "no", "itself", "needed")
    if column in FIELDS:
        assert bool(problems(row, column)) == (cell == "no")
        assert cell != "yes" or any(has(case, column) for case in cases)
    elif column in KINDS:
        assert (cell == "yes") == any(case.startswith(KINDS[column]) for case in cases)
    else:
        # FSDP2 in compiled graphs is tested with the device.
        assert column == "torch_compile" and (cell == "yes") == (row == "fsdp" or any(has(c, row) for c in COMPILED))


def test_table_is_complete():
    assert {row for row, _ in CELLS} == set(FIELDS)
    assert {column for _, column in CELLS} == set(FIELDS) | set(KINDS) | {"torch_compile"}


@pytest.mark.parametrize("name", WITHOUT_EFFECT)
def test_argument_without_effect_is_reported(name, caplog):
    caplog.set_level(logging.INFO, "optimum_neuron.distributed.layout")
    assert TrainingNeuronConfig(**{name: False}) == TrainingNeuronConfig()
    assert [record.args[0] for record in caplog.records] == [name]


def test_init_only_arguments_are_in_order_of_class():
    stored = {field.name for field in dataclasses.fields(TrainingNeuronConfig)}
    assert [name for name in TrainingNeuronConfig.__dataclass_fields__ if name not in stored] == list(WITHOUT_EFFECT)


def test_interleaved_stages_are_error():
    (problem,) = TrainingNeuronConfig(virtual_pipeline_parallel_size=2).problems()
    assert problem.details == {"option": "virtual_pipeline_parallel_size", "value": 2}
    assert TrainingNeuronConfig(virtual_pipeline_parallel_size=1).problems() == []
