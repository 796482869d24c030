"""The table of environment variables, and the warnings about ignored ones."""

from __future__ import annotations

import warnings

import pytest

from optimum_neuron.base import env, startup
from optimum_neuron.base.variables import PREFIXES, TABLE, row_of

ISSUE = (
    *("NEURON_RT_EXEC_TIMEOUT", "NEURON_FRAMEWORK_DEBUG", "NEURON_RT_ASYNC_EXEC_MAX_INFLIGHT_REQUESTS"),
    *("NEURON_PARALLEL_COMPILE", "NEURON_FUSE_SOFTMAX", "XLA_IR_DEBUG"),
    "NEURON_RT_INSPECT_DEVICE_PROFILE",
)


def test_table_is_sorted_and_every_name_has_sentence():
    assert list(TABLE) == sorted(TABLE) and all(row.meaning for row in TABLE.values())
    assert all(row.honored or name.startswith(PREFIXES) for name, row in TABLE.items())


def test_full_name_has_precedence_over_pattern():
    assert row_of("XLA_USE_BF16") == TABLE["XLA_USE_BF16"]
    assert row_of("XLA_IR_DEBUG") == TABLE["XLA_*"]
    assert row_of("NEURON_RT_INSPECT_ENABLE").honored and not row_of("NEURON_RT_INSPECT_DEVICE_PROFILE").honored
    assert row_of("NEURON_NO_SUCH_NAME") is None and row_of("PATH") is None


@pytest.mark.parametrize("name", ISSUE)
def test_ignored_variable_is_warned_about_once(name, monkeypatch):
    monkeypatch.setattr(startup, "_warned", set())
    environ = {name: "1", "PATH": "/bin", "NEURON_RT_NUM_CORES": "1"}
    with pytest.warns(UserWarning, match=name) as records:
        startup.warn_unused(environ)
    assert len(records) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        startup.warn_unused(environ)


def test_mistyped_name_gets_nearest_one():
    name = "NEURON_RT_VISIBLE_CORE"
    assert "NEURON_RT_VISIBLE_CORES" in startup.unused({name: "0"})[name]


def test_variables_in_use_cause_no_warning():
    assert startup.unused(dict.fromkeys(env.VARIABLES, "1")) == {}
