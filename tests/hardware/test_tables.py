"""The page is what the catalogue says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from optimum_neuron.errors import ConfigError
from optimum_neuron.hardware.contradictions import CONTRADICTIONS
from optimum_neuron.hardware.tables import fill_tables, main, markdown_tables

PAGE = Path(__file__).parents[2] / "docs" / "hardware.md"


def test_the_page_has_every_table_and_is_up_to_date() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert set(re.findall(r"<!-- table: ([a-z-]+) -->", page)) == set(markdown_tables())
    assert fill_tables(page) == page, "run: python -m optimum_neuron.hardware.tables docs/hardware.md"


def test_the_code_on_the_page_runs() -> None:
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert blocks
    for block in blocks:
        exec(compile(block, str(PAGE), "exec"), {})


def test_every_row_has_the_columns_of_its_header() -> None:
    for name, table in markdown_tables().items():
        lines = table.splitlines()
        assert len(lines) > 3, name
        assert {line.count("|") for line in lines} == {lines[0].count("|")}, name


def test_main_replaces_a_stale_table_and_keeps_the_text(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- table: targets -->\nstale\n<!-- /table -->\nafter\n")
    main(str(page))
    text = page.read_text()
    assert text.startswith("before\n<!-- table: targets -->\n| target |")
    assert text.endswith("<!-- /table -->\nafter\n") and "stale" not in text
    assert [p.name for p in tmp_path.iterdir()] == ["page.md"]


def test_unknown_table_is_refused() -> None:
    with pytest.raises(ConfigError, match="no such table"):
        fill_tables("<!-- table: prices -->\n<!-- /table -->")


def test_contradictions_are_complete_and_distinct() -> None:
    topics = [c.topic for c in CONTRADICTIONS]
    assert len(set(topics)) == len(topics) >= 15
    assert all(c.chosen and c.alternative and c.reason and c.sources for c in CONTRADICTIONS)
    assert all(c.chosen != c.alternative for c in CONTRADICTIONS)
