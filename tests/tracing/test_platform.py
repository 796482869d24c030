"""The platform's name."""

import pytest

from optimum_neuron.tracing import get_platform_target


@pytest.mark.parametrize(
    ("variable", "value", "name"),
    [
        (None, None, "inf2"),
        ("NEURON_PLATFORM_TARGET_OVERRIDE", "trn2", "trn2"),
        ("OPTIMUM_NEURON_INSTANCE", "trn1n.32xlarge", "trn1"),
    ],
)
def test_platform_target_has_vendor_name(monkeypatch, variable, value, name):
    if variable is not None:
        monkeypatch.setenv(variable, value)
    assert get_platform_target() == name
