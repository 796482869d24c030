"""Names of packages are imported when they are first used; unknown ones are named with the nearest."""

import pytest

from optimum_neuron.lazy import lazy_names


def test_a_name_comes_from_its_module():
    from optimum_neuron.exporters.export import main_export

    assert lazy_names("optimum_neuron.exporters", {"main_export": "export"})("main_export") is main_export


def test_an_unknown_name_is_an_attribute_error_with_the_nearest():
    with pytest.raises(AttributeError, match="'optimum_neuron.exporters' has no attribute 'main_exprot'.*main_export"):
        lazy_names("optimum_neuron.exporters", {"main_export": "export"})("main_exprot")
