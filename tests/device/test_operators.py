"""Every operator of torch's database: values, strides and gradients are the CPU's, but for the exceptions on the page.

One sample of each entry, and a fourteenth of the entries a day;
`python -m tests.device.opinfo` runs six, as docs/device.md reports.
"""

from __future__ import annotations

import json
import os
import re
from typing import Any

import pytest

from tests import sampling, warm
from tests.device.conftest import ROOT


@pytest.fixture(scope="module")
def sweep(request, built) -> dict[str, Any]:
    """Result of the sweep, in a fork: torch's test utilities change settings permanently."""
    pytest.importorskip("expecttest", reason="torch's database of operators needs it")
    environment = {**os.environ, "OPTIMUM_NEURON_INSTANCE": "inf2.24xlarge", "OMP_NUM_THREADS": "1"}
    command = ["-m", "tests.device.opinfo", "--samples", "1", "--adaptive", "--json"]
    command += ["--part", *map(str, sampling.part(request, days=14))]
    result = warm.run(*command, env=environment)
    assert result.returncode == 0, result.stderr[-4000:]
    return json.loads(result.stdout)


def exceptions() -> set[str]:
    """Entries in the table of the page."""
    page = (ROOT / "docs" / "device.md").read_text(encoding="utf-8")
    section = page.partition("## Operators")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (`.*?) \|", section, flags=re.MULTILINE)
    return {name for row in rows for name in re.findall("`(.+?)`", row)}


def test_table_names_entries_and_leaves_enough(sweep):
    assert exceptions() <= set(sweep["entries"])
    assert len(sweep["entries"]) - len(exceptions()) >= 690


@pytest.mark.parametrize("mode", ["plain", "adaptive"])
def test_every_other_entry_matches_cpu(sweep, mode):
    failures = sweep["failures"][mode]
    assert {name: reason for name, reason in failures.items() if name.split()[0] not in exceptions()} == {}


@pytest.mark.parametrize("mode", ["plain", "adaptive"])
def test_sweep_detects_differences(sweep, mode):
    assert {"sparse.mm.reduce", "tensor_split"} <= {name.split()[0] for name in sweep["failures"][mode]}
    assert sweep["controls"][mode] == {"value": "values differ by 1", "stride": True, "host": "result on cpu"}
